// Three controllers on three members of a real etcd, each pair on a machine (a network namespace) of its own,
// under load: a controller or a member is killed, stopped or cut off, or etcd is restored from an older
// snapshot under all of them, again and again. SVCD_SITE_ROUNDS: how often; 7 unless told otherwise, 200 in
// `make test-long`.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { start } from '../support/child.js'
import { output } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'
import { allWell, type Controller, startControllers, writerOf } from '../support/site-controllers.js'
import type { Line, Task } from './load.js'

const isLong = process.env.SVCD_LONG !== undefined
const rounds = Number(process.env.SVCD_SITE_ROUNDS ?? (isLong ? 200 : 7))
// The load would take the processors from all other tests.
const scripts = Number(process.env.SVCD_SITE_SCRIPTS ?? (isLong ? 2000 : 60))
/** How many times as long each client of the load pauses between its changes and reports. */
const slower = isLong ? 1 : 3
const NODES = 200
/** How long a fault lasts, of a writer once another one writes. */
const HOLD_MS = isLong ? 3000 : 1000
/** A connection that was cut, or a process that was stopped, may fail for so long after it is well again. */
const AFTER_MS = 4000

type How = 'killed' | 'stopped' | 'cut off' | 'restored'
type Target = 'writer' | 'follower' | 'leader of etcd' | 'majority of etcd' | 'all of etcd'

/** A fault, when it was there, and which controllers could not be reached. */
interface Round {
  readonly what: string
  readonly target: Target
  readonly from: number
  /** When its end began, and when all that was started for it was there. */
  readonly healing: number
  readonly healed: number
  readonly out: ReadonlySet<number>
  /** What was acknowledged in this time, in ms since 1970, an older snapshot does not have. */
  readonly forgotten?: readonly [from: number, to: number]
  /** Who has not said that etcd was restored. */
  readonly silent?: readonly number[]
}

/** How often it has said that etcd was restored, since its last start. */
const saidRestored = ({ daemon }: Controller) => daemon.log().split('etcd was restored from an older').length

/** Restores etcd from a snapshot, while what came after it is acknowledged. */
async function restored(controllers: readonly Controller[]): Promise<Round> {
  const { site } = await leaderOf(controllers)
  const before = controllers.map(saidRestored)
  const begun = Date.now()
  const snapshot = await site.save()
  await sleep(HOLD_MS)
  const from = Date.now()
  await Promise.all(controllers.map(({ site }) => site.member.kill()))
  const killed = Date.now()
  await Promise.all(controllers.map(({ site }) => site.restore(snapshot)))
  const healing = Date.now()
  await Promise.all(controllers.map(({ site }) => site.startMember()))
  const healed = Date.now()
  await allWell(controllers)
  // An acknowledgement may be on its way for a moment.
  const forgotten = [begun, killed + 1000] as const
  const silent = controllers.filter((each, i) => saidRestored(each) === before[i]).map(({ at }) => at)
  return {
    what: 'all of etcd restored',
    target: 'all of etcd',
    from,
    healing,
    healed,
    out: new Set(),
    forgotten,
    silent
  }
}

const macOf = (i: number) =>
  `52:54:00:00:${Math.floor(i / 256)
    .toString(16)
    .padStart(2, '0')}:${(i % 256).toString(16).padStart(2, '0')}`

async function leaderOf(controllers: readonly Controller[]): Promise<Controller> {
  for (const controller of controllers) {
    const { leader, header } = (await controller.site.ask('maintenance/status', {})) ?? {}
    if (leader !== undefined && leader === (header as { member_id?: string } | undefined)?.member_id)
      return controller
  }
  throw new Error('no member says that it leads')
}

async function fill({ site, daemon }: Controller): Promise<void> {
  await daemon.create('network', 'cluster', { network: '10.128.0.0/12' })
  await daemon.create('group', 'g', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  for (let i = 1; i <= 8; i++) await daemon.create('node', `n${i}`, { group: 'g', comment: '0' })
  const table = [
    'name,group,macaddr',
    ...Array.from({ length: NODES }, (_, i) => `r${i + 1},g,${macOf(i + 1)}`),
    ''
  ].join('\n')
  const [program = '', ...words] = site.enter
  await output(program, [
    ...[...words, 'curl', '--silent', '--show-error', '--fail-with-body', '--data-binary', table],
    ...['--header', `x-access-tokens: ${daemon.client().token}`],
    `http://${site.address}:7050/config/node?format=csv`
  ])
}

/** Makes a fault, holds it, and ends it. */
async function fault(controllers: readonly Controller[], target: Target, how: How): Promise<Round> {
  const writer = await writerOf(controllers)
  const followers = controllers.filter(controller => controller !== writer)
  const leader = await leaderOf(controllers)
  const hit =
    target === 'writer'
      ? [writer]
      : target === 'follower'
        ? followers.slice(0, 1)
        : target === 'leader of etcd'
          ? [leader]
          : [leader, ...controllers.filter(controller => controller !== leader)].slice(0, 2)
  const isSvcd = target === 'writer' || target === 'follower'
  const from = Date.now()
  const processOf = ({ site, daemon }: Controller) => (isSvcd ? daemon.child : site.member)?.process
  await Promise.all(
    hit.map(async controller => {
      if (how === 'cut off') await controller.site.cut(true)
      else processOf(controller)?.kill(how === 'killed' ? 'SIGKILL' : 'SIGSTOP')
    })
  )
  const left = controllers.filter(controller => !hit.includes(controller))
  if (hit.includes(writer) && left.length > 1 && (isSvcd || how === 'cut off')) await writerOf(left)
  await sleep(HOLD_MS)
  const healing = Date.now()
  await Promise.all(
    hit.map(async controller => {
      if (how === 'cut off') await controller.site.cut(false)
      else if (how === 'stopped') processOf(controller)?.kill('SIGCONT')
      else if (isSvcd) await controller.daemon.start()
      else await controller.site.startMember()
    })
  )
  const healed = Date.now()
  const out = new Set(isSvcd || how === 'cut off' ? hit.map(({ at }) => at) : [])
  await allWell(controllers)
  return { what: `${target} ${how}`, target, from, healing, healed, out }
}

/** Every head that was ever written, in order: number and who wrote it. */
async function headsOf({ site }: Controller): Promise<[number, bigint][]> {
  const [program = '', ...words] = site.enter
  const command = ['timeout', '20', 'etcdctl', 'watch', '--rev=1', '--write-out=json', '/svcd/head']
  const text = await output(program, [...words, 'sh', '-c', `${command.join(' ')} || true`])
  return text
    .split('\n')
    .filter(Boolean)
    .flatMap(line => (JSON.parse(line).Events ?? []) as { kv: { value?: string } }[])
    .flatMap(({ kv }) => {
      const [number, revision] = Buffer.from(kv.value ?? '', 'base64')
        .toString()
        .split(' ')
      return number && revision ? [[Number(number), BigInt(revision)] as [number, bigint]] : []
    })
}

/** The names of the objects of a type that etcd holds. */
async function namesOf({ site }: Controller, type: string): Promise<string[]> {
  const [program = '', ...words] = site.enter
  const prefix = `/svcd/objects/${type}/`
  const text = await output(program, [...words, 'etcdctl', 'get', '--prefix', '--keys-only', prefix])
  return text
    .split('\n')
    .filter(Boolean)
    .map(key => key.slice(prefix.length))
    .sort()
}

const median = (values: readonly number[]) =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

/** Each with each, and a restore; the first seven have all of both. */
const faults: readonly (readonly [Target, How])[] = [
  ['writer', 'killed'],
  ['follower', 'stopped'],
  ['leader of etcd', 'cut off'],
  ['majority of etcd', 'killed'],
  ['writer', 'stopped'],
  ['writer', 'cut off'],
  ['all of etcd', 'restored'],
  ['follower', 'killed'],
  ['follower', 'cut off'],
  ['leader of etcd', 'killed'],
  ['leader of etcd', 'stopped'],
  ['majority of etcd', 'stopped'],
  ['majority of etcd', 'cut off']
]

t.test(`${rounds} faults under load`, { timeout: 300_000 + rounds * 60_000 }, async t => {
  const { controllers, enter } = await startControllers(t)
  const [first] = controllers as [Controller]
  await fill(first)
  const file = join(scratch(t), 'load')
  const task: Task = {
    ...{ controllers: controllers.map(({ site }) => `${site.address}:7050`), file, scripts, slower },
    token: first.daemon.client().token,
    macs: Array.from({ length: NODES }, (_, i) => macOf(i + 1))
  }
  const [program = '', ...words] = enter
  const load = start(program, [
    ...words,
    process.execPath,
    join(import.meta.dirname, 'load.js'),
    JSON.stringify(task)
  ])
  t.teardown(() => load.kill())
  await sleep(HOLD_MS)

  const done: Round[] = []
  for (let i = 0; i < rounds; i++) {
    const [target, how] = faults[i % faults.length] as (typeof faults)[number]
    done.push(await (how === 'restored' ? restored(controllers) : fault(controllers, target, how)))
    await sleep(isLong ? 1000 : 500)
  }
  const over = Date.now()
  load.process.stdin?.end()
  t.match(await load.ended, { code: 0 })
  await allWell(controllers)

  const lines = readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line) as Line)
  const ofAll = <K extends Line['kind']>(kind: K) =>
    lines.filter((line): line is Extract<Line, { kind: K }> => line.kind === kind)
  const isForgotten = ({ ms }: Line) =>
    done.some(({ forgotten: [from, to] = [0, 0] }) => ms >= from && ms <= to)
  /** Those that no older snapshot has taken away. */
  const of = <K extends Line['kind']>(kind: K) => ofAll(kind).filter(line => !isForgotten(line))
  const acknowledged = lines
    .filter(({ kind }) => kind === 'created' || kind === 'changed')
    .map(({ ms }) => ms)

  // Two writers at once, or a commit that was lost, would be seen here.
  const heads = await headsOf(first)
  const pairs = heads.slice(1).map((head, i) => [heads[i] as (typeof heads)[number], head] as const)
  // Of a commit that was told as failed, and was not made, the number is left out by who told so.
  const isLeftOut = ([[before, by], [number, revision]]: (typeof pairs)[number]) =>
    number === before + 2 && revision === by
  const leftOut = pairs.filter(isLeftOut)
  const disorder = pairs.filter(pair => {
    const [[before, by], [number, revision]] = pair
    return !isLeftOut(pair) && (number !== before + 1 || revision < by)
  })
  t.strictSame(disorder.slice(0, 5), [], `${heads.length} commits, one after the other`)
  t.ok(leftOut.length <= rounds, `${leftOut.length} numbers are left out`)

  // What each of them holds in memory, once it writes.
  const exports: string[] = []
  let left = controllers
  const lost = new Set<string>()
  // What was sent to one that stood still, or was cut off, may come later than what was sent after it.
  const unsureReports = new Set(
    [...ofAll('unsure-report'), ...ofAll('reported').filter(isForgotten)].map(({ count }) => count)
  )
  const unsureChanges = new Set(
    [...ofAll('unsure-change'), ...ofAll('changed').filter(isForgotten)].map(({ comment }) => Number(comment))
  )
  let unrefused = 0
  while (left.length > 0) {
    const writer = await writerOf(left)
    const { body } = await writer.daemon.request('GET', '/config/cluster/export')
    exports.push(JSON.stringify(body))
    const { body: devices } = await writer.daemon.request('GET', '/config/otherdev')
    const there = (devices as { config: { otherdev: Record<string, { ipaddress: string }> } }).config.otherdev
    for (const { name, address } of of('created'))
      if (there[name]?.ipaddress !== address) lost.add(`${name}: ${there[name]?.ipaddress}`)
    const stored = await namesOf(writer, 'otherdev')
    t.strictSame(Object.keys(there).sort(), stored, 'what it has is what is stored')
    if (left === controllers) unrefused = of('refused').filter(({ name }) => there[name] !== undefined).length
    const { body: states } = await writer.daemon.request('GET', '/monitor/node')
    const { status } = (states as { monitor: { status: Record<string, { state: string | null }> } }).monitor
    const last = new Map(of('reported').map(({ node, count }) => [node, count]))
    for (const [node, count] of last) {
      const { state } = status[node] ?? {}
      const found = Number(state?.replace('installer.', ''))
      if (!(found >= count || unsureReports.has(found)))
        lost.add(`${node}: ${state} after installer.${count}`)
    }
    const { body: nodes } = await writer.daemon.request('GET', '/config/node')
    const comment = Number(
      (nodes as { config: { node: Record<string, { comment: string }> } }).config.node.n1?.comment
    )
    const changed = Number(of('changed').at(-1)?.comment)
    if (!(comment >= changed || unsureChanges.has(comment))) lost.add(`n1: ${comment} after ${changed}`)
    await writer.daemon.stop()
    left = left.filter(controller => controller !== writer)
  }
  t.equal(exports.length, 3)
  t.equal(new Set(exports).size, 1, 'the memory of all is the same')

  const isOut = (at: number, ms: number) =>
    ms > over || done.some(({ out, from, healed }) => out.has(at) && ms >= from && ms <= healed + AFTER_MS)
  const failed = of('script-failed').filter(({ at, ms }) => !isOut(at, ms))
  // `ms`: from the fault to the end of the longest time without an acknowledged change that began in it;
  // `afterMs`: the longest one that began when it was over.
  const gaps = done.map(({ from, healing, what, target }, i) => {
    const isMajority = target === 'majority of etcd' || target === 'all of etcd'
    const begins = isMajority ? healing : from
    const next = acknowledged.filter(ms => ms >= from - 500 && ms < (done[i + 1]?.from ?? over))
    const times = next.slice(1).map((ends, i) => ({ starts: next[i] as number, ends }))
    const longest = (those: typeof times) =>
      those.reduce((a, b) => (b.ends - b.starts > a.ends - a.starts ? b : a), {
        starts: begins,
        ends: begins
      })
    const inIt = longest(times.filter(({ starts }) => isMajority || starts < healing))
    const after = longest(times.filter(({ starts }) => starts >= healing))
    return { what, ms: Math.max(0, inIt.ends - begins), afterMs: after.ends - after.starts }
  })
  for (const what of new Set(gaps.map(gap => gap.what))) {
    const those = gaps.filter(gap => gap.what === what)
    const ms = those.map(gap => gap.ms)
    console.error(
      `${what}: ${ms.length} times, the next write after ${median(ms)} ms, at most ${Math.max(...ms)}; ` +
        `when it is over, at most ${Math.max(...those.map(({ afterMs }) => afterMs))} ms without one`
    )
  }
  const ofWriter = gaps.filter((_, i) => done[i]?.target === 'writer').map(({ ms }) => ms)
  const served = of('scripts').reduce((sum, { counts }) => sum + counts.reduce((a, b) => a + b, 0), 0)
  const seconds = (over - (lines[0]?.ms ?? over)) / 1000
  proof('three controllers on three members of etcd', {
    tried: rounds,
    lost: lost.size,
    halfDone: of('half').length,
    backMs: Math.max(...ofWriter),
    note:
      `${of('created').length + of('changed').length} changes, ${of('reported').length} reports, ${Math.round(served / seconds)} scripts/s, ` +
      `${failed.length} failed; ${heads.length} commits in order, ${disorder.length} not, ${leftOut.length} left out; median ${median(ofWriter)} ms; 503 and there: ${unrefused}`
  })
  const restores = done.filter(({ forgotten }) => forgotten).length
  const taken =
    ofAll('created').length + ofAll('changed').length - of('created').length - of('changed').length
  t.strictSame(
    done.flatMap(({ silent = [] }) => silent),
    [],
    'each controller says when etcd was restored'
  )
  console.error(
    `${restores} restores, ${taken} changes that were acknowledged between a snapshot and its restore`
  )
  const { dbSize } = (await first.site.ask('maintenance/status', {})) ?? {}
  console.error(`etcd's file has ${Math.round(Number(dbSize) / 1e6)} MB after ${Math.round(seconds)} s`)
  console.error(
    `${of('created').length} created, ${of('changed').length} changed, ${of('reported').length} reported, ${of('refused').length} refused ` +
      `(${unrefused} of them there), ${served} scripts in ${Math.round(seconds)} s, ${failed.length} failed`
  )
  t.strictSame([...lost], [], 'nothing acknowledged is lost')
  t.strictSame(of('half'), [], 'no change is half done')
  t.strictSame(
    failed.slice(0, 5).map(line => ({
      ...line,
      round: done.find(({ from, healed }) => line.ms >= from && line.ms <= healed + 8000)?.what
    })),
    [],
    'no boot script fails at a controller that nothing happened to'
  )
})
