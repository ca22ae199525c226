// A part of the machines of a storm, in a process of its own: each asks what a machine asks from its power
// switch to its installed system, in that order, and tries again when and as iPXE, the boot templates and the
// node's side do.
//
// iPXE asks over one connection that it keeps, and opens another if that has ended meanwhile. It has no time
// limit, and asks again after a 503 with Retry-After. Without a menu the firmware gives up: the machine is
// lost. When the boot script fails the menu waits 5 s and asks again; when kernel or initramfs fail the
// script waits 10 s and goes back to the menu (templates/boot). The install script is tried 5 times, with
// pauses of 1, 2, 4 and 8 s, then from the start after 2 s, 4 s, … 60 s (dracut/90svc). A report is tried
// twice and given up; the functions that all install scripts share are tried as the script is, and without
// them all begins anew with the script (templates/install/lib). Each curl has a connection of its own. Lost
// SYNs are sent again by this system's kernel, after 1, 3, 7 s, where iPXE would be quicker.
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, macOf, nameOf } from '../cluster.mjs'
import { Connection } from './connection.mjs'
import { Times } from './times.mjs'

const STATES = [
  ...['started', 'prescript', 'partscript', 'download', 'unpack', 'network', 'secrets', 'files', 'hostkeys'],
  ...['postscript', 'roles', 'completed']
]
/** Time limits of curl in svc-fetch.sh and http.sh, in ms. */
const SCRIPT_MS = 120_000
const REPORT_MS = 60_000

class Failed extends Error {}

/** The findings of a process of machines. */
class Found {
  times = {}
  first = new Times()
  booted = 0
  lost = 0
  reportsLost = 0
  /** How often a try failed, by reason: a code of the system, `cut`, `late`, or a status. */
  failures = {}
  connections = 0

  took(kind, ms) {
    this.times[kind] ??= new Times()
    this.times[kind].record(ms)
  }

  failed(reason) {
    this.failures[reason] = (this.failures[reason] ?? 0) + 1
  }
}

class Machine {
  #i
  #port
  #source
  #one
  #untilLoaded
  #found
  #connection
  #token = ''

  constructor(i, { ports, one, untilLoaded }, found) {
    this.#i = i
    this.#port = ports[i % ports.length]
    this.#one = one
    this.#untilLoaded = untilLoaded
    this.#source = addressOf(i)
    this.#found = found
  }

  async boot() {
    const begun = performance.now()
    try {
      await this.#ipxe(begun)
      if (!this.#untilLoaded) await this.#install()
      this.#found.booted++
    } catch (error) {
      if (!(error instanceof Failed)) throw error
      this.#found.lost++
    } finally {
      this.#connection?.close()
    }
  }

  async #install() {
    this.#leave()
    await this.#script()
    for (const state of STATES.slice(1)) await this.#report(state)
  }

  /** With a connection for each program the next request opens a new one. */
  #leave() {
    if (this.#one) return
    this.#connection?.close()
    this.#connection = undefined
  }

  /** One try; undefined when it fails. */
  async #try(kind, request, limit = 0) {
    const from = performance.now()
    for (;;) {
      if (!this.#connection?.open) {
        this.#connection = new Connection(this.#port, this.#source)
        this.#found.connections++
      }
      const connection = this.#connection
      const kept = connection.used
      try {
        const answer = await connection.ask(request, limit, kind === 'install script')
        if (answer.status < 300) {
          this.#found.took(kind, performance.now() - from)
          return answer
        }
        this.#found.failed(answer.status)
        const pause = answer.status === 503 && /\r\nretry-after: *(\d+)/i.exec(answer.head)?.[1]
        if (!pause) return undefined
        await sleep(pause * 1000)
      } catch (reason) {
        // A kept connection that ended meanwhile is opened again by iPXE, and tells nothing.
        if (kept && reason !== 'late') continue
        this.#found.failed(reason)
        return undefined
      }
    }
  }

  #get(path) {
    return `GET ${path} HTTP/1.1\r\nHost: controller\r\nUser-Agent: iPXE/1.21.1\r\nConnection: keep-alive\r\n\r\n`
  }

  async #ipxe(begun) {
    for (let first = true; ; first = false) {
      const menu = await this.#try('menu', this.#get('/boot'))
      if (menu === undefined && first) throw new Failed()
      if (first) this.#found.first.record(performance.now() - begun)
      if (menu === undefined) {
        await sleep(10_000)
        continue
      }
      while (!(await this.#try('boot script', this.#get(`/boot/search/mac/${macOf(this.#i)}`))))
        await sleep(5000)
      if (
        (await this.#try('kernel', this.#get('/boot/vmlinuz'))) &&
        (await this.#try('initramfs', this.#get('/boot/initrd.img')))
      )
        return
      await sleep(10_000)
    }
  }

  async #script() {
    const request = `GET /boot/install/${nameOf(this.#i)} HTTP/1.1\r\nHost: controller\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n`
    for (let round = 2000; ; round = Math.min(round * 2, 60_000)) {
      const answer = await this.#tries('install script', request)
      if (answer) {
        this.#token = /^SVC_TOKEN='?([\w.-]+)/m.exec(answer.body)?.[1] ?? ''
        await this.#report(STATES[0])
        // Scripts of earlier versions held them.
        const library = /^ {2}library '([\da-f]{64})'$/m.exec(answer.body)?.[1]
        if (library === undefined || (await this.#tries('library', this.#curl(`/boot/library/${library}`))))
          return
        await this.#report(`failed: ${STATES[0]}`)
      }
      await sleep(round)
    }
  }

  /** Five tries; undefined when all fail. */
  async #tries(kind, request) {
    for (let pause = 1000; ; pause *= 2) {
      const answer = await this.#try(kind, request, SCRIPT_MS)
      this.#leave()
      if (answer || pause > 8000) return answer
      await sleep(pause)
    }
  }

  #curl(path) {
    return `GET ${path} HTTP/1.1\r\nHost: controller\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\nx-access-tokens: ${this.#token}\r\n\r\n`
  }

  async #report(step) {
    const body = JSON.stringify({
      monitor: { status: { [nameOf(this.#i)]: { state: `installer.${step}` } } }
    })
    const request =
      `POST /monitor/node/${nameOf(this.#i)} HTTP/1.1\r\nHost: controller\r\nUser-Agent: curl/7.88.1\r\n` +
      `Accept: */*\r\nx-access-tokens: ${this.#token}\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`
    for (const pause of [1000, 0]) {
      const answer = await this.#try('report', request, REPORT_MS)
      this.#leave()
      if (answer) return
      await sleep(pause)
    }
    this.#found.reportsLost++
  }
}

/**
 * `task`: machines `from`, `from + step`, … below `machines`, which begin within `within` ms, each at its own
 * moment.
 */
process.once('message', async task => {
  const { machines, from, step, within } = task
  const found = new Found()
  const cpu = process.cpuUsage()
  const waiting = []
  for (let i = from; i < machines; i += step)
    waiting.push(sleep((i / machines) * within).then(() => new Machine(i, task, found).boot()))
  const tell = done => {
    const { user, system } = process.cpuUsage(cpu)
    process.send({
      ...found,
      clientCpu: (user + system) / 1000,
      unfinished: done ? 0 : waiting.length - found.booted - found.lost
    })
  }
  const over = setTimeout(() => tell(false), task.limit)
  await Promise.all(waiting)
  clearTimeout(over)
  tell(true)
})
