import { writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core'
import { inParallel } from '../../../lib/base/concurrency.js'
import { cheapHash } from '../../support/callers.js'
import { Daemon } from '../../support/daemon.js'
import { program } from './chromium.js'

/** There are users `viewer0` and on, so many: one user may open 32 streams of events (rules 2.20). */
export const MANY_VIEWERS = 8

/** A real daemon with a cluster that looks like one: nodes of every condition, in groups and racks. */
export class Stage {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 32 })
  token = ''
  url = ''

  private constructor(readonly daemon: Daemon) {}

  static async start(directory: string, nodes: number): Promise<Stage> {
    const viewers = Array.from({ length: MANY_VIEWERS }, (_, i) => `viewer${i}=viewer`)
    const users = ['root=admin', 'alice=viewer', 'olga=operator', ...viewers].map(user => {
      const [name, role] = user.split('=')
      return `users.${name}=${role} ${cheapHash('correct horse')}`
    })
    const daemon = new Daemon({
      directory,
      set: ['http.trusted_proxies=127.0.0.1', 'log.level=warn', 'auth.token_lifetime=8h', ...users]
    })
    daemon.child = daemon.launch()
    await daemon.child.says('next, ask for a token')
    const stage = new Stage(daemon)
    stage.url = /listens on (http:\S+);/.exec(daemon.log())?.[1] ?? ''
    stage.token = await stage.logIn('root')
    await stage.#fill(nodes)
    return stage
  }

  async logIn(username: string): Promise<string> {
    const { body } = await this.ask('POST', '/token', { username, password: 'correct horse' })
    return (body as { token: string }).token
  }

  /** One request; `from`: the address that it comes from. Throws Error where it is refused. */
  async ask(
    method: string,
    path: string,
    body?: unknown,
    from?: string,
    token = from === undefined ? this.token : ''
  ): Promise<{ body: unknown; text: string }> {
    const text = body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body)
    return new Promise((resolve, reject) => {
      const outgoing = request(
        this.url + path,
        {
          method,
          agent: this.#agent,
          headers: {
            'Content-Length': Buffer.byteLength(text),
            ...(token === '' ? {} : { 'x-access-tokens': token }),
            ...(from === undefined ? {} : { 'X-Forwarded-For': from })
          }
        },
        incoming => {
          let answer = ''
          incoming.setEncoding('utf8').on('data', piece => {
            answer += piece
          })
          incoming.on('error', reject)
          incoming.on('end', () => {
            if ((incoming.statusCode ?? 500) >= 300)
              return reject(new Error(`${method} ${path}: ${incoming.statusCode} ${answer}`))
            resolve({ text: answer, body: /^[{[]/.test(answer) ? JSON.parse(answer) : undefined })
          })
        }
      )
      outgoing.on('error', reject)
      outgoing.end(text)
    })
  }

  /** A node reports a state; by its own token, or by an admin's. */
  report(node: string, state: string, token = '', from?: string) {
    const by = token === '' ? this.token : token
    return this.ask('POST', `/monitor/node/${node}`, { state }, from, by)
  }

  async stop(): Promise<void> {
    this.#agent.destroy()
    await this.daemon.stop()
  }

  async #fill(nodes: number): Promise<void> {
    for (const name of ['vmlinuz', 'initrd.img', 'compute.tar.gz', 'old.tar.gz', 'login.tar.gz'])
      writeFileSync(this.daemon.path('files', name), name.repeat(2000))
    await this.ask('POST', '/config/network/cluster', {
      ...{ network: '10.141.0.0/16', gateway: '10.141.255.253' },
      ...{ dhcp: true, dhcp_range_begin: '10.141.240.0', dhcp_range_end: '10.141.250.255' }
    })
    await this.ask('POST', '/config/network/bmc', { network: '10.148.0.0/18', comment: 'power of the nodes' })
    const image = (imagefile: string) => ({ kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile })
    await this.ask('POST', '/config/osimage/compute', {
      ...image('old.tar.gz'),
      ...{ kernelversion: '6.1.0-28-amd64', comment: 'Debian 12, batch system' }
    })
    await this.ask('POST', '/config/osimage/login', {
      ...image('login.tar.gz'),
      kernelversion: '6.1.0-28-amd64'
    })
    await this.ask('POST', '/config/osimage/compute/tag', { tag: 'spring' })
    await this.ask('POST', '/config/bmcsetup/boards', { username: 'root', password: 'calvin' })
    const interfaces = [{ interface: 'BOOTIF', network: 'cluster' }]
    for (const [group, osimage] of Object.entries({ compute: 'compute', gpu: 'compute', login: 'login' }))
      await this.ask('POST', `/config/group/${group}`, { osimage, interfaces, bmcsetupname: 'boards' })
    const lines = this.names(nodes).map((name, i) => {
      const group = this.group(i, nodes)
      return `${name},${group},${mac(i)}`
    })
    for (let i = 0; i < lines.length; i += 2000)
      await this.ask(
        'POST',
        '/config/node?format=csv',
        ['name,group,macaddr', ...lines.slice(i, i + 2000), ''].join('\n')
      )
    const all = this.names(nodes)
    for (let i = 0; i < nodes; i += 64)
      await this.ask('POST', `/config/node/${all.slice(i, i + 64).join(',')},${all[i]}`, {
        variables: { rack: String(1 + i / 64) }
      })
    await this.#live(nodes)
  }

  names(nodes: number): string[] {
    const digits = String(nodes).length
    return Array.from({ length: nodes }, (_, i) => `node${String(i + 1).padStart(Math.max(3, digits), '0')}`)
  }

  group(i: number, nodes: number): string {
    return nodes > 10 && i >= nodes - 4 ? 'login' : i % 512 >= 448 ? 'gpu' : 'compute'
  }

  /** Most are up; some are in each of the other conditions. */
  async #live(nodes: number): Promise<void> {
    const names = this.names(nodes)
    await inParallel(names.entries(), 32, async ([i, name]) => {
      const from = await this.addressOf(name, i)
      const n = nodes <= 5 ? ([0, 97, 31][i % 3] ?? 0) : (i * 7919) % 1000
      let token = ''
      const boots = async () => this.ask('GET', `/boot/search/mac/${mac(i)}`, undefined, from)
      if (n >= 990) return
      if (n >= 980) return void (await boots())
      if (nodes <= 50 || n >= 900) {
        await boots()
        await this.ask('GET', '/boot/vmlinuz', undefined, from)
        await this.ask('GET', '/boot/initrd.img', undefined, from)
        const { text } = await this.ask('GET', `/boot/install/${name}`, undefined, from)
        token = /SVC_TOKEN=['"]?([\w.-]+)/.exec(text)?.[1] ?? ''
      }
      const report = (state: string) => this.report(name, state, token, from)
      if (n >= 970) return void (await report('installer.downloading'))
      if (n >= 960) return void (await report('installer.unpacking'))
      if (n >= 30 && n < 36) return void (await report('installer.failed: partscript: /dev/sda is too small'))
      await report('installer.completed')
    })
    await this.ask('POST', '/config/osimage/compute', { imagefile: 'compute.tar.gz' })
  }

  /** A node's address, which svcd gave it in the order of the table. */
  async addressOf(_: string, i: number): Promise<string> {
    const n = i + 1
    return `10.141.${n >> 8}.${n & 255}`
  }
}

export const mac = (i: number) =>
  `52:54:01:${[i >> 16, (i >> 8) & 255, i & 255].map(byte => byte.toString(16).padStart(2, '0')).join(':')}`

/** What a window of the browser is like. */
export interface Look {
  readonly theme: 'light' | 'dark'
  readonly width: number
  readonly height: number
  /** The time zone of who looks. */
  readonly zone?: string
}

export const looks: readonly (Look & { readonly name: string })[] = [
  { name: 'desktop-light', theme: 'light', width: 1360, height: 860 },
  { name: 'desktop-dark', theme: 'dark', width: 1360, height: 860 },
  { name: 'phone-light', theme: 'light', width: 390, height: 800 },
  { name: 'phone-dark', theme: 'dark', width: 390, height: 800 }
]

/** Debian's Chromium, without a window. */
export const browser = (): Promise<Browser> =>
  chromium.launch({ executablePath: program, args: ['--no-sandbox', '--disable-dev-shm-usage'] })

/** A window that is logged in with a token; `problems` gathers what its console says that is no news. */
export async function open(
  on: Browser,
  { url }: Stage,
  look: Look,
  token: string | undefined,
  path = '/'
): Promise<{ page: Page; context: BrowserContext; problems: string[] }> {
  const context = await on.newContext({
    colorScheme: look.theme,
    viewport: { width: look.width, height: look.height },
    ...(look.zone === undefined ? {} : { timezoneId: look.zone }),
    ...(look.width < 600 ? { isMobile: true, hasTouch: true, deviceScaleFactor: 2 } : {})
  })
  const problems: string[] = []
  if (token !== undefined)
    await context.addInitScript({ content: `sessionStorage.setItem('svcd-token', ${JSON.stringify(token)})` })
  const page = await context.newPage()
  page.on('console', message => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text())
  })
  page.on('pageerror', error => problems.push(String(error)))
  await page.goto(url + path)
  return { page, context, problems }
}
