import { Counter, Gauge, type Metric, Registry } from 'prom-client'
import { type CachedResult, cachedFor, runSliced } from '../base/concurrency.js'
import type { Report } from './node-status.js'
import type { Site } from './site.js'

/** One text serves all requests within this time. */
const SHARED_MS = 1000

/** Upper bounds of the buckets, in seconds. */
const REQUEST_SECONDS = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30]
const STEP_SECONDS = [1, 5, 15, 30, 60, 120, 300, 600, 1800]

/** Steps of the install script in order. Any other word that a node reports counts as `other`. */
export const installSteps = [
  ...['started', 'prescript', 'bmcsetup', 'partscript', 'download', 'unpack', 'network', 'secrets', 'files'],
  ...['hostkeys', 'postscript', 'roles', 'bootloader', 'labels', 'completed', 'failed']
]

interface FinishedRequest {
  /** Route with the pattern of its path, the same object for all its requests; undefined without a route. */
  readonly route: { readonly method: string; readonly path: string } | undefined
  /** 0 if the client left before an answer. */
  readonly status: number
  readonly ms: number
  readonly bytes: number
}

/** Values that are looked up only when metrics are requested. */
interface Sources {
  readonly nodes: () => readonly string[]
  readonly state: (name: string) => string | null
  /** Finds the stale nodes, in slices. */
  readonly stale: () => Generator<undefined, readonly string[]>
  readonly jobs: () => Iterable<string>
  /** Name → whether the service is well. */
  readonly services: () => Iterable<readonly [string, boolean]>
  /** Name → how often its files were applied, and failed to be. */
  readonly applies: () => Iterable<readonly [string, { readonly applied: number; readonly failed: number }]>
  /** Group → how many of its nodes are not like the others. */
  readonly odd?: () => Iterable<readonly [group: string, count: number]>
  /** Verdict → how many nodes proved it last. */
  readonly trust?: () => Iterable<readonly [verdict: string, count: number]>
  readonly site?: Pick<Site, 'status' | 'others' | 'gone'> | undefined
  readonly loopDelayMs: () => number
  /** Milliseconds since 1970. */
  readonly now: () => number
}

interface Scan {
  readonly states: ReadonlyMap<string, number>
  readonly stale: number
  readonly jobs: ReadonlyMap<string, number>
}

interface MetricsText {
  readonly type: string
  readonly text: string
}

/** A histogram of plain integers: counting must not slow down a boot. */
class Histogram {
  readonly counts: number[]
  sum = 0
  count = 0

  constructor(readonly bounds: readonly number[]) {
    this.counts = bounds.map(() => 0)
  }

  add(seconds: number): void {
    const bucket = this.bounds.findIndex(bound => seconds <= bound)
    if (bucket >= 0) this.counts[bucket] = (this.counts[bucket] ?? 0) + 1
    this.sum += seconds
    this.count++
  }

  values(name: string, labels: Labels): Value[] {
    let below = 0
    const buckets = this.counts.map((count, i) => {
      below += count
      return { metricName: `${name}_bucket`, labels: { ...labels, le: this.bounds[i] ?? 0 }, value: below }
    })
    return [
      ...buckets,
      { metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: this.count },
      { metricName: `${name}_sum`, labels, value: this.sum },
      { metricName: `${name}_count`, labels, value: this.count }
    ]
  }
}

type Labels = Readonly<Record<string, string | number>>
interface Value {
  readonly metricName: string
  readonly labels: Labels
  readonly value: number
}

interface RouteCounts {
  readonly method: string
  readonly route: string
  readonly times: Histogram
  readonly statuses: Map<number, number>
  bytes: number
}

/** The metrics of `GET /metrics` (rules 6.13). Labels have few values, whatever a client or a node sends. */
export class Metrics {
  readonly #registry = new Registry()
  readonly #routes = new Map<FinishedRequest['route'], RouteCounts>()
  readonly #steps = new Map<string, Histogram>()
  readonly #ended = { completed: 0, failed: 0 }
  readonly #store = { commits: 0, objects: 0 }
  readonly #text: CachedResult<MetricsText>
  #imageBytes = 0
  #scan: Scan = { states: new Map(), stale: 0, jobs: new Map() }

  constructor(private readonly sources: Sources) {
    this.#text = cachedFor(SHARED_MS, () => this.#render(), sources.now)
    this.#register(sources)
    this.#registerControllers(sources.site)
  }

  /** Returns the content type and the text, at most one second old: many scrapers cost as much as one. */
  text(): Promise<MetricsText> {
    return this.#text.get()
  }

  async #render(): Promise<MetricsText> {
    this.#scan = await runSliced(scanSliced(this.sources))
    return { type: this.#registry.contentType, text: await this.#registry.metrics() }
  }

  request({ route, status, ms, bytes }: FinishedRequest): void {
    let counts = this.#routes.get(route)
    if (!counts) {
      const { method, path } = route ?? { method: '-', path: '-' }
      counts = { method, route: path, times: new Histogram(REQUEST_SECONDS), statuses: new Map(), bytes: 0 }
      this.#routes.set(route, counts)
    }
    counts.times.add(ms / 1000)
    counts.statuses.set(status, (counts.statuses.get(status) ?? 0) + 1)
    counts.bytes += bytes
    if (counts.route.startsWith('/files/')) this.#imageBytes += bytes
  }

  /** Counts the objects of a commit; `more`: more slices of the same commit follow. */
  committed(objects: number, more = false): void {
    if (!more) this.#store.commits++
    this.#store.objects += objects
  }

  /** Counts a report of a node, which ends the step that it reported before. */
  reported(before: Report | undefined, now: Report | undefined): void {
    const step = stepOf(now?.state)
    if (!now || step === undefined) return
    if (step === 'completed' || step === 'failed') this.#ended[step]++
    const last = stepOf(before?.state)
    if (!before || last === undefined || last === 'completed' || last === 'failed' || step === 'started')
      return
    const times = this.#steps.get(last) ?? new Histogram(STEP_SECONDS)
    this.#steps.set(last, times)
    times.add(Math.max(0, Date.parse(now.time) - Date.parse(before.time)) / 1000)
  }

  #register({ services, applies, loopDelayMs }: Sources): void {
    const [routes, steps] = [this.#routes, this.#steps]
    const ofRoutes = ['method', 'route']
    this.#series('svcd_http_requests_total', 'Requests that are over', [...ofRoutes, 'status'], function* () {
      for (const { method, route, statuses } of routes.values())
        for (const [status, count] of statuses) yield [{ method, route, status }, count]
    })
    this.#series('svcd_http_sent_bytes_total', 'Bytes of bodies sent', ofRoutes, function* () {
      for (const { method, route, bytes } of routes.values()) yield [{ method, route }, bytes]
    })
    this.#one('svcd_image_sent_bytes_total', 'Bytes of packed images sent by http', () => this.#imageBytes)
    this.#series('svcd_installations_total', 'Installations that ended', ['outcome'], () =>
      labelled('outcome', Object.entries(this.#ended))
    )
    this.#one('svcd_store_commits_total', 'Changes that were made durable', () => this.#store.commits)
    this.#one('svcd_store_objects_written_total', 'Objects in these changes', () => this.#store.objects)
    this.#one('process_cpu_seconds_total', 'Processor time of the daemon', () => {
      const { user, system } = process.cpuUsage()
      return (user + system) / 1e6
    })
    const took = 'From a request to the end of its answer'
    this.#histogram('svcd_http_request_duration_seconds', took, function* (name) {
      for (const { method, route, times } of routes.values()) yield* times.values(name, { method, route })
    })
    const stepTook = 'How long steps of installations took'
    this.#histogram('svcd_installation_step_duration_seconds', stepTook, function* (name) {
      for (const [step, times] of steps) yield* times.values(name, { step })
    })
    this.#series('svcd_nodes', 'Nodes by their last state', ['state'], () =>
      labelled('state', this.#scan.states)
    )
    this.#one('svcd_nodes_stale', 'Nodes that would get something else than they run', () => this.#scan.stale)
    const unlike = 'Nodes whose hardware is not like that of most of their group'
    this.#series('svcd_nodes_odd', unlike, ['group'], () => labelled('group', this.sources.odd?.() ?? []))
    const proved = 'Nodes by the verdict on their last quote'
    this.#series('svcd_node_trust', proved, ['verdict'], () =>
      labelled('verdict', this.sources.trust?.() ?? [])
    )
    this.#series('svcd_requests_in_background', 'Requests with a record, by state', ['state'], () =>
      ['queued', 'running', 'done', 'failed'].map(state => [{ state }, this.#scan.jobs.get(state) ?? 0])
    )
    this.#series('svcd_service_ok', 'Whether a part of svcd, or a service, is well', ['service'], () =>
      labelled(
        'service',
        [...services()].map(([name, ok]) => [name, Number(ok)])
      )
    )
    const inForce = 'Files put in force, or refused'
    this.#series('svcd_service_applies_total', inForce, ['service', 'outcome'], function* () {
      for (const [service, counts] of applies())
        for (const [outcome, count] of Object.entries(counts)) yield [{ service, outcome }, count]
    })
    const late = 'How late the event loop is on average'
    this.#one('svcd_event_loop_delay_seconds', late, () => Math.max(0, loopDelayMs()) / 1000)
    this.#one('process_resident_memory_bytes', 'Memory of the daemon', () => process.memoryUsage.rss())
    const began = Date.now() / 1000 - process.uptime()
    this.#one('process_start_time_seconds', 'When the daemon began, since 1970', () => began)
  }

  /** A single controller has no values, but the names exist for alerting rules. */
  #registerControllers(site: Sources['site']): void {
    this.#series('svcd_controller_role', 'Role of this controller: 1', ['role'], () => {
      const role = site?.status.role
      return role ? ['primary', 'standby', 'unknown'].map(one => [{ role: one }, Number(one === role)]) : []
    })
    const last = 'Number of the last change that it has'
    this.#one('svcd_store_revision', last, () => site?.status.revision ?? 0)
    const lag = 'Time since it was last known to have all changes'
    this.#one('svcd_store_lag_seconds', lag, () => (site?.status.lag_ms ?? 0) / 1000)
    this.#series('svcd_controllers', 'Controllers, with this one', ['status'], () => {
      const found = site && { there: site.others.length + 1, gone: site.gone.length }
      return labelled('status', Object.entries(found ?? {}))
    })
    const ahead = 'How far the clock of another controller is ahead of that of this one'
    this.#series('svcd_controller_clock_offset_seconds', ahead, ['controller'], function* () {
      for (const { name: controller, aheadMs } of site?.others ?? [])
        if (aheadMs !== undefined) yield [{ controller }, aheadMs / 1000]
    })
  }

  /** By the convention of Prometheus, a name that ends in _total is that of a counter. */
  #series(name: string, help: string, labelNames: string[], collect: () => Iterable<[Labels, number]>): void {
    const Kind = name.endsWith('_total') ? Counter : Gauge
    new Kind({
      ...{ name, help, labelNames, registers: [this.#registry] },
      collect() {
        this.reset()
        for (const [labels, value] of collect()) this.inc({ ...labels }, value)
      }
    })
  }

  #one(name: string, help: string, value: () => number): void {
    this.#series(name, help, [], () => [[{}, value()]])
  }

  /** Not the histogram of the library: that counts by itself, and slower. */
  #histogram(name: string, help: string, values: (name: string) => Iterable<Value>): void {
    const histogram = {
      name,
      help,
      type: 'histogram',
      aggregator: 'sum',
      get: async () => ({ name, help, type: 'histogram', aggregator: 'sum', values: [...values(name)] })
    }
    this.#registry.registerMetric(histogram as unknown as Metric<string>)
  }
}

const labelled = (label: string, values: Iterable<readonly [string, number]>): [Labels, number][] =>
  [...values].map(([value, count]) => [{ [label]: value }, count])

/** Scans all nodes and requests, in slices that yield to other work. */
function* scanSliced({ nodes, state, stale, jobs }: Sources): Generator<undefined, Scan> {
  const found = { states: new Map<string, number>(), jobs: new Map<string, number>() }
  for (const name of [...nodes()]) {
    yield
    count(found.states, stateOf(state(name)))
  }
  for (const job of jobs()) {
    yield
    count(found.jobs, job)
  }
  return { ...found, stale: (yield* stale()).length }
}

const count = (counts: Map<string, number>, word: string) => counts.set(word, (counts.get(word) ?? 0) + 1)

/** Returns the installation step in a state; undefined if it has none. */
function stepOf(state: string | undefined): string | undefined {
  const [, word] = /^installer\.(\w+)/.exec(state ?? '') ?? []
  return word === undefined ? undefined : installSteps.includes(word) ? word : 'other'
}

/** Returns a label for a state, since nodes may report any text. */
function stateOf(state: string | null): string {
  if (state === null) return 'none'
  const step = stepOf(state)
  return step === undefined ? 'other' : `installer.${step}`
}
