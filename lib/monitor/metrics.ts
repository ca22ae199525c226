import { Counter, Gauge, type Metric, Registry } from 'prom-client'
import { inSlices, type Shared, shared } from '../concurrency.js'
import type { Controller, Standing } from '../store/medium.js'
import type { Report } from './node-status.js'

/** One text serves all who ask within so long. */
const SHARED_MS = 1000

/** Upper bounds of the times that are told, in seconds. */
const REQUEST_SECONDS = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30]
const STEP_SECONDS = [1, 5, 15, 30, 60, 120, 300, 600, 1800]

/** The steps of the install script, in their order. Another word that a node reports counts as `other`. */
export const installSteps = [
  ...['started', 'prescript', 'bmcsetup', 'partscript', 'download', 'unpack', 'network', 'secrets', 'files'],
  ...['hostkeys', 'postscript', 'roles', 'bootloader', 'labels', 'completed', 'failed']
]

/** A request that is over, as it is counted. */
export interface Counted {
  /** Its route, one object for all requests, with the pattern of its path; undefined where there is none. */
  readonly route: { readonly method: string; readonly path: string } | undefined
  /** 0: the client was gone before there was one. */
  readonly status: number
  readonly ms: number
  /** Of the body that was sent. */
  readonly bytes: number
}

/** What is looked up when somebody asks, and not before. */
export interface Sources {
  /** The names of all nodes. */
  readonly nodes: () => readonly string[]
  /** The last state of a node, null where none is known. */
  readonly state: (name: string) => string | null
  /** Finds the nodes that would get something else than they run, in pieces. */
  readonly stale: () => Generator<undefined, readonly string[]>
  /** The state of each request with a record. */
  readonly jobs: () => Iterable<string>
  /** Name → whether it is well. */
  readonly services: () => Iterable<readonly [string, boolean]>
  /** Name → how often its files were put in force, and could not be. */
  readonly applies: () => Iterable<readonly [string, { readonly applied: number; readonly failed: number }]>
  /** Of controllers that share the objects: where this one stands, those beside it, and how many are gone. Absent: it is alone. */
  readonly controllers?:
    | (() => {
        readonly standing: Standing
        readonly others: readonly Pick<Controller, 'name' | 'aheadMs'>[]
        readonly gone: number
      })
    | undefined
  /** How late the event loop is, in milliseconds. */
  readonly loopDelayMs: () => number
  /** Milliseconds since 1970. */
  readonly now: () => number
}

/** What was found by a look at each node and each request. */
interface Looked {
  readonly states: ReadonlyMap<string, number>
  readonly stale: number
  readonly jobs: ReadonlyMap<string, number>
}

/** A text as Prometheus takes it. */
interface MetricsText {
  readonly type: string
  readonly text: string
}

/** Times in buckets: integers alone, so that to count costs nothing that a boot could notice. */
class Times {
  readonly counts: number[]
  sum = 0
  count = 0

  constructor(readonly bounds: readonly number[]) {
    this.counts = bounds.map(() => 0)
  }

  add(seconds: number): void {
    let bucket = 0
    for (const bound of this.bounds) {
      if (seconds <= bound) {
        this.counts[bucket] = (this.counts[bucket] ?? 0) + 1
        break
      }
      bucket++
    }
    this.sum += seconds
    this.count++
  }

  /** As Prometheus has them: each bucket with all that are smaller. */
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

const noRoute = { method: '-', path: '-' }

/** One route with its answers. */
interface RouteCounts {
  readonly method: string
  readonly route: string
  readonly times: Times
  readonly statuses: Map<number, number>
  bytes: number
}

/**
 * What `GET /metrics` tells (rules 6.13), in the text format of Prometheus. What happens is counted in plain integers; the
 * rest is looked up when it is asked for. Every label has one of few values, whatever a client or a node sends.
 */
export class Metrics {
  readonly #registry = new Registry()
  readonly #routes = new Map<Counted['route'], RouteCounts>()
  readonly #steps = new Map<string, Times>()
  readonly #ended = { completed: 0, failed: 0 }
  readonly #store = { commits: 0, objects: 0 }
  readonly #sources: Sources
  readonly #text: Shared<MetricsText>
  #imageBytes = 0
  #looked: Looked = { states: new Map(), stale: 0, jobs: new Map() }

  constructor(sources: Sources) {
    this.#sources = sources
    this.#text = shared(SHARED_MS, () => this.#made(), sources.now)
    this.#counters()
    this.#times()
    this.#gauges(sources)
    if (sources.controllers) this.#ofControllers(sources.controllers)
  }

  /** The type and the text of an answer; one that is a second old at most, so that many who ask cost as much as one. */
  text(): Promise<MetricsText> {
    return this.#text.get()
  }

  async #made(): Promise<MetricsText> {
    this.#looked = await inSlices(looking(this.#sources))
    return { type: this.#registry.contentType, text: await this.#registry.metrics() }
  }

  /** Counts a request that is over. */
  request({ route, status, ms, bytes }: Counted): void {
    let counts = this.#routes.get(route)
    if (!counts) {
      const { method, path } = route ?? noRoute
      counts = { method, route: path, times: new Times(REQUEST_SECONDS), statuses: new Map(), bytes: 0 }
      this.#routes.set(route, counts)
    }
    counts.times.add(ms / 1000)
    counts.statuses.set(status, (counts.statuses.get(status) ?? 0) + 1)
    counts.bytes += bytes
    if (counts.route.startsWith('/files/')) this.#imageBytes += bytes
  }

  /** Counts so many objects of a commit of the store; `more`: others of the same commit follow. */
  committed(objects: number, more = false): void {
    if (!more) this.#store.commits++
    this.#store.objects += objects
  }

  /** Counts what a node reported; the step that it reported before has ended by it. */
  reported(before: Report | undefined, now: Report | undefined): void {
    const step = stepOf(now?.state)
    if (!now || step === undefined) return
    if (step === 'completed' || step === 'failed') this.#ended[step]++
    const last = stepOf(before?.state)
    if (!before || last === undefined || last === 'completed' || last === 'failed' || step === 'started')
      return
    let times = this.#steps.get(last)
    if (!times) {
      times = new Times(STEP_SECONDS)
      this.#steps.set(last, times)
    }
    times.add(Math.max(0, Date.parse(now.time) - Date.parse(before.time)) / 1000)
  }

  #counters(): void {
    const routes = this.#routes
    const ended = this.#ended
    const store = this.#store
    const imageBytes = () => this.#imageBytes
    this.#counter(
      'svcd_http_requests_total',
      'Requests that are over',
      ['method', 'route', 'status'],
      function* () {
        for (const { method, route, statuses } of routes.values())
          for (const [status, count] of statuses) yield [{ method, route, status }, count]
      }
    )
    this.#counter('svcd_http_sent_bytes_total', 'Bytes of bodies sent', ['method', 'route'], function* () {
      for (const { method, route, bytes } of routes.values()) yield [{ method, route }, bytes]
    })
    this.#counter('svcd_image_sent_bytes_total', 'Bytes of packed images sent by http', [], function* () {
      yield [{}, imageBytes()]
    })
    this.#counter('svcd_installations_total', 'Installations that ended', ['outcome'], function* () {
      for (const [outcome, count] of Object.entries(ended)) yield [{ outcome }, count]
    })
    this.#counter('svcd_store_commits_total', 'Changes that were made durable', [], function* () {
      yield [{}, store.commits]
    })
    this.#counter('svcd_store_objects_written_total', 'Objects in these changes', [], function* () {
      yield [{}, store.objects]
    })
    this.#counter('process_cpu_seconds_total', 'Processor time of the daemon', [], function* () {
      const { user, system } = process.cpuUsage()
      yield [{}, (user + system) / 1e6]
    })
  }

  #times(): void {
    const routes = this.#routes
    const steps = this.#steps
    this.#histogram(
      'svcd_http_request_duration_seconds',
      'From a request to the end of its answer',
      function* (name) {
        for (const { method, route, times } of routes.values()) yield* times.values(name, { method, route })
      }
    )
    this.#histogram(
      'svcd_installation_step_duration_seconds',
      'How long steps of installations took',
      function* (name) {
        for (const [step, times] of steps) yield* times.values(name, { step })
      }
    )
  }

  #gauges({ services, applies, loopDelayMs }: Sources): void {
    const looked = () => this.#looked
    this.#gauge('svcd_nodes', 'Nodes by their last state', ['state'], function* () {
      for (const [state, count] of looked().states) yield [{ state }, count]
    })
    this.#gauge('svcd_nodes_stale', 'Nodes that would get something else than they run', [], function* () {
      yield [{}, looked().stale]
    })
    this.#gauge('svcd_requests_in_background', 'Requests with a record, by state', ['state'], function* () {
      const { jobs } = looked()
      for (const state of ['queued', 'running', 'done', 'failed']) yield [{ state }, jobs.get(state) ?? 0]
    })
    this.#gauge(
      'svcd_service_ok',
      'Whether a part of svcd, or a service, is well',
      ['service'],
      function* () {
        for (const [service, ok] of services()) yield [{ service }, ok ? 1 : 0]
      }
    )
    this.#counter(
      'svcd_service_applies_total',
      'Files put in force, or refused',
      ['service', 'outcome'],
      function* () {
        for (const [service, counts] of applies())
          for (const [outcome, count] of Object.entries(counts)) yield [{ service, outcome }, count]
      }
    )
    this.#gauge('svcd_event_loop_delay_seconds', 'How late the event loop is on average', [], function* () {
      yield [{}, Math.max(0, loopDelayMs()) / 1000]
    })
    this.#gauge('process_resident_memory_bytes', 'Memory of the daemon', [], function* () {
      yield [{}, process.memoryUsage.rss()]
    })
    const began = Date.now() / 1000 - process.uptime()
    this.#gauge('process_start_time_seconds', 'When the daemon began, since 1970', [], function* () {
      yield [{}, began]
    })
  }

  #ofControllers(found: NonNullable<Sources['controllers']>): void {
    const roles = ['primary', 'standby', 'unknown']
    this.#gauge('svcd_controller_role', 'The part of this controller: 1', ['role'], () =>
      roles.map(role => [{ role }, found().standing.role === role ? 1 : 0])
    )
    this.#gauge('svcd_store_revision', 'The number of the last change that it knows', [], () => [
      [{}, found().standing.revision]
    ])
    this.#gauge('svcd_store_lag_seconds', 'How long ago it was known to miss no change', [], () => [
      [{}, found().standing.lag_ms / 1000]
    ])
    this.#gauge('svcd_controllers', 'Controllers, with this one', ['status'], () => [
      [{ status: 'there' }, found().others.length + 1],
      [{ status: 'gone' }, found().gone]
    ])
    const help = 'How far the clock of another controller is ahead of that of this one'
    this.#gauge('svcd_controller_clock_offset_seconds', help, ['controller'], () =>
      found().others.flatMap(({ name: controller, aheadMs }) =>
        aheadMs === undefined ? [] : [[{ controller }, aheadMs / 1000]]
      )
    )
  }

  #counter(
    name: string,
    help: string,
    labelNames: string[],
    collect: () => Iterable<[Labels, number]>
  ): void {
    const counter = new Counter({
      ...{ name, help, labelNames, registers: [this.#registry] },
      collect() {
        this.reset()
        for (const [labels, value] of collect()) this.inc({ ...labels }, value)
      }
    })
    void counter
  }

  #gauge(name: string, help: string, labelNames: string[], collect: () => Iterable<[Labels, number]>): void {
    const gauge = new Gauge({
      ...{ name, help, labelNames, registers: [this.#registry] },
      collect() {
        this.reset()
        for (const [labels, value] of collect()) this.set({ ...labels }, value)
      }
    })
    void gauge
  }

  /** The library's own histogram counts by itself, and slower: this one is made of what was counted. */
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

/** Looks at each node and each request, in pieces that take turns with other work. */
function* looking({ nodes, state, stale, jobs }: Sources): Generator<undefined, Looked> {
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

/** The step that a state tells of; undefined where it is none of an installation. */
function stepOf(state: string | undefined): string | undefined {
  const [, word] = /^installer\.(\w+)/.exec(state ?? '') ?? []
  return word === undefined ? undefined : installSteps.includes(word) ? word : 'other'
}

/** A state as a label: nodes may report any text. */
function stateOf(state: string | null): string {
  if (state === null) return 'none'
  const step = stepOf(state)
  return step === undefined ? 'other' : `installer.${step}`
}
