import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

// The clock is set before the first https request (rules 4.34). No program of this machine that could set its
// clock is run: functions of the shell stand in for them.

const library = fileURLToPath(new URL('../../dracut/90svc', import.meta.url))
const shells = [['bash'], ['dash'], ['busybox', 'ash'], ['/usr/lib/klibc/bin/sh']] as const

interface Case {
  /** What the clock says, in seconds since 1970. */
  readonly now: number
  /** The head of the answer. */
  readonly head: string
  readonly url?: string
  readonly others?: string
  readonly insecure?: string
  /** When the initramfs was built. */
  readonly built?: number
}

/** What the clock was set to, and what was said. */
function clock(
  words: readonly string[],
  { now, head, url = 'https://c:7050', others = '', insecure = '', built = 0 }: Case
) {
  const [program = '', ...args] = words
  const script = `
log() { echo "said $*"; }
program() { [ "$1" = curl ]; }
curl() { echo "asked $*" >&2; printf '%b' "$HEAD"; }
stat() { echo "$BUILT"; }
date() {
  case "$*" in
    '-u +%s') echo "$NOW" ;;
    '-u -s '*) echo "set $3" >&3 ;;
    *) /usr/bin/date "$@" ;;
  esac
}
. ${library}/svc-fetch.sh
clock_ask() { curl -q -k -I "$1" 2>&3; }
set_clock 3>&1
`
  const env = {
    ...{ PATH: '/usr/bin:/bin', HEAD: head, NOW: String(now), BUILT: String(built), _LIB: library },
    ...{ SVC_URL: url, SVC_OTHERS: others, SVC_INSECURE: insecure }
  }
  const out = execFileSync(program, [...args, '-c', script], {
    encoding: 'utf8',
    env,
    stdio: ['ignore', 'pipe', 'pipe']
  })
  return { out, set: /^set (.*)$/m.exec(out)?.[1] }
}

const date = (text: string) => `HTTP/1.1 200 OK\\r\\nDate: ${text}\\r\\nServer: x\\r\\n\\r\\n`
const at = Date.UTC(2026, 10, 26, 1, 27, 2) / 1000
const right = date('Thu, 26 Nov 2026 01:27:02 GMT')

for (const words of shells) {
  const shell = words.at(-1) ?? ''
  t.test(`a clock that is off is set, ${shell}`, t => {
    for (const now of [0, at - 61, at + 61, at + 400 * 86_400])
      t.equal(clock(words, { now, head: right }).set, '2026-11-26 01:27:02', `${now - at} s off`)
    t.match(
      clock(words, { now: at - 3600, head: right }).out,
      /said the clock was 3600 s off: it is set to 2026-11-26/
    )
    for (const [month, name] of 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ').entries())
      t.equal(
        clock(words, { now: 0, head: date(`Mon, 08 ${name} 2029 09:08:07 GMT`) }).set,
        `2029-${String(month + 1).padStart(2, '0')}-08 09:08:07`
      )
    t.equal(
      clock(words, { now: 0, head: right, url: 'http://c', others: 'https://d' }).set,
      '2026-11-26 01:27:02'
    )
    t.end()
  })

  t.test(`a clock that is right, and one that needs not be, stays, ${shell}`, t => {
    for (const now of [at, at - 60, at + 60]) t.equal(clock(words, { now, head: right }).set, undefined)
    const http = clock(words, { now: 0, head: right, url: 'http://c:7050' })
    t.strictSame([http.set, http.out], [undefined, ''], 'without https nobody is asked')
    t.equal(clock(words, { now: 0, head: right, insecure: '1' }).out, '')
    t.end()
  })

  t.test(`what is no date, or cannot be one, sets nothing, ${shell}`, t => {
    for (const head of [
      '',
      'HTTP/1.1 200 OK\\r\\n\\r\\n',
      date('Thu, 26 Nix 2026 01:27:02 GMT'),
      date('Thu, 26 ovD 2026 01:27:02 GMT'),
      date('2026-11-26 01:27:02'),
      date('Thu, 26 Nov 2026 01:27:02 GMT; reboot').replace('GMT;', 'CET;'),
      date('Thu, $(id) Nov 2026 01:27:02 GMT'),
      date('Thu, 39 Nov 2026 01:27:02 GMT')
    ])
      t.equal(clock(words, { now: 0, head }).set, undefined, head)
    const early = clock(words, { now: at + 86_400, head: right, built: at + 3600 })
    t.equal(early.set, undefined)
    t.match(early.out, /before this initramfs was built: the clock stays/)
    t.end()
  })
}
