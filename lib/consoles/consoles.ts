import { randomBytes } from 'node:crypto'
import { forbidden, notFound, tryLater } from '../base/errors.js'
import type { Log } from '../base/log.js'
import type { Config } from '../config/types.js'
import { bmcOf } from '../control/bmc.js'
import type { Actor, Model } from '../model/model.js'
import { consoleLogs } from '../services/services.js'
import { Attachment } from './attachment.js'
import { type ConsoleLine, ConsoleLogs } from './logs.js'

/** Attachments of one user, and of all. */
const MOST_OF_USER = 8
const MOST = 64
/** An attachment ends when nothing was typed for so long. */
const IDLE_MS = 4 * 3_600_000

/** The stream of an attachment begins within this time. */
const FOLLOWED_MS = 10_000

interface ConsolesOptions {
  readonly config: Config
  readonly model: Model
  readonly log: Log
  /** Logs that a user attaches or detaches. */
  readonly onAction: (actor: Actor, nodes: readonly string[], part: string, action: string) => Promise<void>
  /** Default: four hours. */
  readonly idleMs?: number
}

interface Open {
  readonly attachment: Attachment
  readonly node: string
  readonly who: string
  readonly idle: NodeJS.Timeout
}

/** The serial consoles of nodes, through conmand: who is attached, and what they showed. */
export class Consoles {
  readonly #open = new Map<string, Open>()
  readonly #logs: ConsoleLogs
  readonly #attaching = new Set<{ readonly who: string }>()

  constructor(private readonly options: ConsolesOptions) {
    const { config, model, log } = options
    this.#logs = new ConsoleLogs({
      directory: consoleLogs(config),
      logSize: config.consoles.log_size,
      logTotal: config.consoles.log_total,
      hasNode: name => model.view.get('node', name) !== undefined,
      onFailure: reason => log.error(`logs of consoles: ${reason}`)
    })
    if (config.consoles.enabled) this.#logs.start()
  }

  /**
   * Attaches a user to the console of a node. Throws 404 if consoles are not enabled or the node has no BMC,
   * 503 if too many are attached or conmand does not run.
   */
  async attach(node: string, actor: Actor): Promise<Attachment> {
    this.#assertConsole(node)
    const { who } = actor
    const users = [...this.#attaching, ...this.#open.values()].map(one => one.who)
    if (users.filter(user => user === who).length >= MOST_OF_USER)
      throw tryLater(`${who} has ${MOST_OF_USER} consoles open, which is the most for one user`, 30)
    if (users.length >= MOST) throw tryLater(`${MOST} consoles are open, which is the most`, 30)
    const session = randomBytes(16).toString('hex')
    const attaching = { who }
    this.#attaching.add(attaching)
    const { port } = this.options.config.consoles
    const attachment = await Attachment.open(port, node, who.replace(/^user /, ''), session).finally(() =>
      this.#attaching.delete(attaching)
    )
    const idleMs = this.options.idleMs ?? IDLE_MS
    const idle = setTimeout(() => attachment.end('nothing was typed for hours'), idleMs).unref()
    this.#open.set(session, { attachment, node, who, idle })
    attachment.onGone = () => {
      clearTimeout(idle)
      this.#open.delete(session)
      this.#record(actor, node, 'detach')
    }
    this.#record(actor, node, 'attach')
    // The answer may be refused, as one stream too many.
    setTimeout(() => attachment.endUnfollowed(), FOLLOWED_MS).unref()
    return attachment
  }

  /** Types into an attached console. Throws 404 if there is no such session, 403 if it is another user's. */
  type(node: string, { who }: Actor, session: string, text: string, isBreak: boolean): void {
    const open = this.#open.get(session)
    if (!open || open.node !== node)
      throw notFound(`node ${node}: this console is not attached any more: attach again`, 'not-attached')
    if (open.who !== who) throw forbidden(`node ${node}: this console was attached by another user`)
    open.idle.refresh()
    open.attachment.type(text, isBreak)
  }

  /** Returns the last lines of a node's console. Throws 404 as `attach`. */
  async lines(node: string, most: number): Promise<readonly ConsoleLine[]> {
    this.#assertConsole(node)
    return (await this.#logs.tail(node)).slice(-most)
  }

  /** Returns the lines for a verdict; none without consoles. Never rejects. */
  async known(node: string): Promise<readonly ConsoleLine[]> {
    return this.options.config.consoles.enabled ? this.#logs.tail(node).catch(() => []) : []
  }

  async close(): Promise<void> {
    for (const { attachment } of this.#open.values()) attachment.end('svcd is stopping')
    await this.#logs.close()
  }

  #assertConsole(node: string): void {
    const { config, model } = this.options
    if (!config.consoles.enabled)
      throw notFound(
        `node ${node}: svcd configures no consoles: set [consoles] enabled = yes (docs/consoles.md)`,
        'consoles-disabled'
      )
    bmcOf(model, node)
  }

  #record(actor: Actor, node: string, action: 'attach' | 'detach'): void {
    // The audit log reports its own failures.
    this.options.onAction(actor, [node], 'console', action).catch(() => {})
  }
}
