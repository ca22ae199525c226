import { chmodSync, cpSync, readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import { addNode, bmcCluster } from '../support/bmc-cluster.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { checkout, output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

/** Starts and stops conmand as systemd does. */
const control = (directory: string, config: string) => `#!/bin/sh
cd ${directory} || exit 1
stop() { test ! -e pid || { kill "$(cat pid)"; while kill -0 "$(cat pid)"; do sleep 0.05; done; rm pid; } 2>/dev/null; }
case $1 in
status) test -e pid && kill -0 "$(cat pid)" ;;
stop) stop ;;
*) stop; setsid conmand -F -c ${config} </dev/null >>conmand.log 2>&1 & echo $! >pid; sleep 0.3 ;;
esac
`

/** A machine: what its serial port is connected to. */
export class Machine {
  received = ''
  #socket: Socket | undefined
  readonly #waiting: string[] = []

  connect(socket: Socket): void {
    this.#socket = socket.setEncoding('utf8').on('error', () => {})
    socket.on('data', (text: string) => {
      this.received += text
    })
    for (const text of this.#waiting.splice(0)) socket.write(text)
  }

  get isConnected(): boolean {
    return this.#socket !== undefined
  }

  says(text: string | Buffer): void {
    if (this.#socket) this.#socket.write(text)
    else this.#waiting.push(String(text))
  }
}

/** An attached console. */
export interface Attached {
  readonly status: number
  session: string
  text: string
  /** The reason of its end. */
  end: string | undefined
  message: string
  closed: boolean
  pause(): void
  resume(): void
  leave(): void
}

/** Attaches over a socket; resolves once the session is known, or it was refused. */
export function attach(c: Controller, node: string, token: string | null = c.token): Promise<Attached> {
  return new Promise((resolve, reject) => {
    const { address: host, port } = c.daemon
    const headers = token === null ? {} : { 'x-access-tokens': token }
    const outgoing = request({ host, port, path: `/control/console/${node}`, headers }, incoming => {
      let rest = ''
      const attached: Attached = {
        ...{ status: incoming.statusCode ?? 0, session: '', text: '', message: '', closed: false },
        end: undefined,
        pause: () => incoming.pause(),
        resume: () => incoming.resume(),
        leave: () => outgoing.destroy()
      }
      incoming.setEncoding('utf8').on('error', () => {})
      incoming.on('close', () => {
        attached.closed = true
        if (attached.status !== 200) attached.message = JSON.parse(rest).message
        resolve(attached)
      })
      incoming.on('data', (piece: string) => {
        rest += piece
        if (attached.status !== 200) return
        const events = rest.split('\n\n')
        rest = events.pop() ?? ''
        for (const event of events) {
          const [, kind = 'text', data] = /^(?:event: (\w+)\n)?data: (.*)$/.exec(event) ?? []
          if (data === undefined) continue
          if (kind === 'session') attached.session = JSON.parse(data)
          else if (kind === 'end') attached.end = JSON.parse(data)
          else attached.text += JSON.parse(data)
          resolve(attached)
        }
      })
    })
    outgoing.on('error', reject)
    outgoing.end()
  })
}

/** Types into a console. */
export const type = (c: Controller, node: string, body: object, token = c.token) =>
  c.post(`/control/console/${node}`, { control: { consoles: { [node]: body } } }, { token })

/** The settings of a controller whose conmand reaches the machines of a test by sockets. */
export async function settings(
  t: Test,
  directory = scratch(t),
  device = `unix:${directory}/{{ console.name }}.sock`
): Promise<string[]> {
  requirePrograms('conmand')
  const templates = join(directory, 'templates')
  cpSync(join(checkout, 'templates'), templates, { recursive: true })
  const template = join(templates, 'consoles/templ_conman.cfg')
  const text = readFileSync(template, 'utf8')
  if (device !== '') writeFileSync(template, text.replace(/dev="ipmi:.*"$/m, `dev="${device}"`))
  const config = join(directory, 'consoles', 'conman.conf')
  const program = join(directory, 'control')
  writeFileSync(program, control(directory, config))
  chmodSync(program, 0o755)
  t.teardown(() => output(program, ['stop', 'conmand']))
  return [
    `paths.templates=${templates}`,
    ...['consoles.enabled=yes', `consoles.directory=${directory}`],
    ...[`consoles.control=${program}`, `consoles.port=${await freePort()}`, 'consoles.gather=0s']
  ]
}

/** Nodes n1, n2 and so on with their machines, and conmand, which has connected to them. */
export async function lab(
  t: Test,
  nodes: readonly string[],
  started: (...set: string[]) => Promise<Controller> = (...set) => Controller.start(t, ...set)
): Promise<{ c: Controller; directory: string; machines: Record<string, Machine> }> {
  const directory = scratch(t)
  const c = await started(...(await settings(t, directory)))
  const machines: Record<string, Machine> = {}
  for (const name of nodes) {
    const machine = new Machine()
    machines[name] = machine
    const server = createServer(socket => machine.connect(socket)).listen(join(directory, `${name}.sock`))
    t.teardown(() => server.close())
  }
  await bmcCluster(c)
  for (const [i, name] of nodes.entries()) await addNode(c, name, `127.7.0.${i + 1}`)
  const service = c.daemon.services.of('consoles')
  await until(async () => {
    await service?.settled()
    return (await service?.status())?.state !== 'unknown'
  })
  await output(join(directory, 'control'), ['start', 'conmand'])
  await service?.applied()
  await until(
    () => Object.values(machines).every(machine => machine.isConnected),
    () => [readFileSync(join(directory, 'conmand.log'), 'utf8'), c.log]
  )
  return { c, directory, machines }
}
