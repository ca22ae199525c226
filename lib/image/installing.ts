import type { NodeStatus } from '../monitor/node-status.js'

/**
 * Which packs nodes are installing. A node that fetched its install script or kickstart needs the pack that the script
 * names, until the node reports that it is done or has failed, and no longer than its token is valid. Not kept over a
 * restart.
 */
export class Installing {
  readonly #begun = new Map<string, { readonly imagefile: string; readonly at: number }>()

  constructor(
    readonly status: Pick<NodeStatus, 'history'>,
    readonly longestMs: number,
    readonly now: () => number
  ) {}

  /** A node was given a script that names this pack. */
  began(node: string, imagefile: string): void {
    this.#begun.delete(node)
    if (imagefile !== '') this.#begun.set(node, { imagefile, at: this.now() })
  }

  /** Whether a node was given a script that names this pack. */
  isGiven(node: string, imagefile: string): boolean {
    return this.#begun.get(node)?.imagefile === imagefile
  }

  /** The packs in use. */
  packs(): Set<string> {
    const found = new Set<string>()
    for (const [node, { imagefile, at }] of this.#begun)
      if (this.#isOver(node, at)) this.#begun.delete(node)
      else found.add(imagefile)
    return found
  }

  #isOver(node: string, at: number): boolean {
    if (at + this.longestMs <= this.now()) return true
    const last = this.status.history(node).at(-1)
    if (!last || Date.parse(last.time) < at) return false
    return !last.state.startsWith('installer.') || /^installer\.(completed|failed)\b/.test(last.state)
  }
}
