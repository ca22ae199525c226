import type { NodeStatus, Report } from '../monitor/node-status.js'

interface Begun {
  readonly imagefile: string
  /** End of the node's token. */
  readonly until: number
  /** The node's last report when it got the script. */
  readonly before: Report | undefined
}

/**
 * Packs that nodes are installing. A node needs the pack of its install script or kickstart until it reports
 * the end or a failure, and no longer than its token is valid. Lost at a restart.
 */
export class Installing {
  readonly #begun = new Map<string, Begun>()

  /** `ticks`: milliseconds that only grow, because the clock may be set while a node installs. */
  constructor(
    readonly status: Pick<NodeStatus, 'history'>,
    readonly longestMs: number,
    readonly ticks: () => number
  ) {}

  /** A node was given a script that names this pack. */
  began(node: string, imagefile: string): void {
    this.#begun.delete(node)
    const before = this.#last(node)
    if (imagefile !== '') this.#begun.set(node, { imagefile, until: this.ticks() + this.longestMs, before })
  }

  /** Whether a node was given a script that names this pack. */
  isGiven(node: string, imagefile: string): boolean {
    return this.#begun.get(node)?.imagefile === imagefile
  }

  packs(): Set<string> {
    const found = new Set<string>()
    for (const [node, begun] of this.#begun)
      if (this.#isOver(node, begun)) this.#begun.delete(node)
      else found.add(begun.imagefile)
    return found
  }

  #isOver(node: string, { until, before }: Begun): boolean {
    if (until <= this.ticks()) return true
    const last = this.#last(node)
    if (!last || last === before) return false
    return !last.state.startsWith('installer.') || /^installer\.(completed|failed)\b/.test(last.state)
  }

  #last(node: string): Report | undefined {
    return this.status.history(node).at(-1)
  }
}
