import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { Daemon } from './daemon.js'
import { type Site, startSites } from './etcd-sites.js'
import { giveKeys } from './keys.js'
import { output } from './programs.js'
import { scratch } from './scratch.js'
import { until } from './until.js'

/** A look starts several programs. */
const LOOK_MS = 400

/** A controller on a machine with a member of etcd. */
export interface Controller {
  readonly at: number
  readonly site: Site
  readonly daemon: Daemon
}

interface Standing {
  readonly role: string
  readonly revision: number
  readonly lag_ms: number
}

/** What a controller says of itself; undefined where it does not answer. */
async function standingOf({ site, daemon }: Controller): Promise<Standing | undefined> {
  const [program = '', ...words] = site.enter
  const url = `http://${site.address}:7050/version`
  const text = await output(program, [...words, 'curl', '--silent', '--max-time', '2', url]).catch(() => '')
  try {
    return daemon.child && JSON.parse(text).controller
  } catch {
    return undefined
  }
}

/**
 * What each said last that is no request, and what its member of etcd said, for a test that waits in vain.
 */
const said = (controllers: readonly Controller[]) =>
  controllers
    .map(({ site, daemon }) => {
      const lines = daemon.log().slice(-200_000).split('\n')
      const told = lines.filter(line => !/ HTTP\/1\.1 | (GET|POST) \//.test(line)).slice(-20)
      return [site.member.output().slice(-1000), ...told].join('\n')
    })
    .join('\n---\n')

/** The one that writes; waits until one does. */
export async function writerOf(controllers: readonly Controller[]): Promise<Controller> {
  let found: Controller | undefined
  await until(
    async () => {
      await sleep(LOOK_MS)
      for (const controller of controllers)
        if ((await standingOf(controller))?.role === 'primary') found = controller
      return found !== undefined
    },
    () => `a controller to write: ${said(controllers)}`
  )
  return found as Controller
}

/** Waits until one writes, and the others follow it and miss nothing. */
export const allWell = (controllers: readonly Controller[]) =>
  until(
    async () => {
      await sleep(LOOK_MS)
      const standings = await Promise.all(controllers.map(standingOf))
      const roles = standings.map(standing => standing?.role).sort()
      const areStanding =
        roles.join() === ['primary', ...controllers.slice(1).map(() => 'standby')].join() &&
        standings.every(standing => (standing?.lag_ms ?? 9999) < 2500)
      if (!areStanding) return false
      // Two are a majority: one that is gone would be noticed with the next fault only.
      const members = await Promise.all(
        controllers.map(({ site }) => site.ask('kv/range', { key: Buffer.from('x').toString('base64') }))
      )
      return members.every(answer => answer?.header !== undefined)
    },
    () => said(controllers)
  )

/** Starts three, each with its member of etcd; gives also the words before a command on their network. */
export const startControllers = (t: Test, ...more: string[]) =>
  startControllersIn(t, site => site.enter, ...more)

/** The same. `entering`: the words before svcd on a machine. */
export async function startControllersIn(
  t: Test,
  entering: (site: Site, at: number) => readonly string[],
  ...more: string[]
) {
  const { sites, certificate, enter } = await startSites(t)
  const controllers = sites.map((site, at): Controller => {
    const others = sites.filter(other => other !== site).map(({ address }) => `https://${address}:2379`)
    const daemon = new Daemon({
      directory: scratch(t),
      listen: '0.0.0.0:7050',
      enter: entering(site, at),
      set: [
        ...['store.medium=etcd', `store.endpoints=${['http://127.0.0.1:2379', ...others].join()}`],
        ...[`store.ca=${certificate}`, `http.url=http://${site.address}:7050`, `controller.name=c${at + 1}`],
        `controller.address=${site.address}`,
        ...more
      ]
    })
    t.teardown(() => daemon.kill())
    return { at, site, daemon }
  })
  const [first] = controllers as [Controller]
  await first.daemon.start()
  await writerOf([first])
  for (const { daemon } of controllers.slice(1)) {
    giveKeys(first.daemon, daemon)
    await daemon.start()
  }
  await allWell(controllers)
  return { controllers, enter }
}
