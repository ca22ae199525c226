/** Faults that the console of a machine shows, after which nothing more is to come. */
const endings: Readonly<Record<string, RegExp>> = {
  'the kernel panicked': /Kernel panic - not syncing/,
  'the system is in emergency mode':
    /You are in (?:rescue|emergency) mode|Cannot open access to console, the root account is locked/,
  'the initramfs gave up and opened a shell':
    /^\(initramfs\)|^dracut:\/#|Generating "\/run\/initramfs\/rdsosreport\.txt"/,
  'the initramfs found no system to start':
    /No init found\. Try passing|run-init: .*: (?:No such file|Permission denied|Exec format)/,
  'the initramfs found no card with the MAC of the node: it may lack the driver':
    /^svc: FAILED in step interface:/,
  'the loader could not load or start the kernel': /^svcd: node \S+ could not be booted/,
  'the machine restarts after a panic': /Rebooting automatically due to panic=/,
  'systemd cannot go on': /systemd\[1\]: (?:Freezing execution|Failed to (?:allocate|mount|load))/
}
/** All of its faults. */
const patterns = Object.entries({
  ...endings,
  'a file system became read-only': /Remounting filesystem read-only/,
  'a program was killed for lack of memory': /Out of memory: Killed process/
})

const LINES_KEPT = 300
const LONGEST_LINE = 400

const SHORTEST_HIDDEN = 6
const MOST_HIDDEN = 2000
/** A secret is looked for in pieces of this length, as a line may be cut in it. */
const PIECE = 100

/** A line without its control sequences. */
const plain = (text: string): string =>
  text
    .replace(/\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[c78=>])/g, '')
    .replace(/[\x00-\x1f\x7f]/g, '')
    .trimEnd()

/** Texts that no line may show, the longest first: secrets as kept, and the lines of their contents. */
function hiddenOf(secrets: readonly string[]): string[] {
  const contentOf = (secret: string) => Buffer.from(secret, 'base64').toString()
  const texts = secrets.flatMap(secret => [secret, ...contentOf(secret).split(/[\r\n]/)])
  const piece = new RegExp(`.{1,${PIECE}}`, 'gs')
  const pieces = texts.flatMap(text => plain(text).trim().match(piece) ?? [])
  const long = pieces.filter(piece => piece.length >= SHORTEST_HIDDEN)
  return [...new Set(long)].sort((a, b) => b.length - a.length).slice(0, MOST_HIDDEN)
}

/** The last lines of a machine's console, and the faults that they showed. It is bounded, whatever comes. */
export class Console {
  readonly lines: string[] = []
  readonly faults = new Set<string>()
  /** A fault after which nothing more is to come. */
  hasEnded = false
  lastMs: number
  readonly #hidden: readonly string[]

  /** `secrets`: contents in base64. None of them, or of their lines, is kept. */
  constructor(
    private readonly ticks: () => number,
    secrets: readonly string[] = []
  ) {
    this.lastMs = ticks()
    this.#hidden = hiddenOf(secrets)
  }

  /** Takes a line with its control sequences. */
  add(raw: string): void {
    const isCut = raw.length > 4 * LONGEST_LINE
    const whole = plain(raw.slice(0, 4 * LONGEST_LINE))
    const text = whole.slice(0, LONGEST_LINE)
    this.lastMs = this.ticks()
    if (text === '') return
    const masked = this.#hidden.reduce((line, one) => line.replaceAll(one, '***'), whole)
    this.lines.push(masked.slice(0, isCut ? -PIECE : undefined).slice(0, LONGEST_LINE))
    if (this.lines.length > LINES_KEPT) this.lines.shift()
    for (const [fault, pattern] of patterns)
      if (pattern.test(text)) {
        this.faults.add(fault)
        this.hasEnded ||= fault in endings
      }
  }
}

/** Rules of `_why` that end a rehearsal well. */
const good: ReadonlySet<string> = new Set(['all-well', 'image-changed', 'trust-reported', 'rescue'])
/** Rules that only say that time has passed: the machine may be slow. */
const waiting: ReadonlySet<string> = new Set([
  ...['in-progress', 'slow', 'stalled', 'nothing-asked', 'never-asked', 'address-only', 'fetched-nothing'],
  ...['no-interface', 'no-report', 'no-mac', 'wrong-mac', 'from-disk', 'cut', 'no-system']
])

/** Whether a verdict of `_why` decides: well, not well, or undefined if it goes on. `isUp`: it reported. */
export function decided(rule: string, isUp: boolean): boolean | undefined {
  if (good.has(rule)) return isUp ? true : undefined
  return waiting.has(rule) ? undefined : false
}
