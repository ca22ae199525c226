import { statSync } from 'node:fs'
import t from 'tap'
import { base64 } from '../support/install-data.js'
import { completed, failed, install } from './install.js'
import { allShells, everyCase, shells } from './installing-node.js'

// What a failed script has printed goes into the report, and the log of the installation into the image
// (rules 4.32).

t.jobs = 3

const printed = (state: string | undefined) => /; it printed: ([\s\S]*)$/.exec(state ?? '')?.[1]

for (const shell of allShells) {
  t.test(`the last 20 lines that a failed script has printed are in the report, ${shell}`, async t => {
    const script = base64(
      'i=1; while [ $i -le 300 ]; do echo "line $i"; i=$((i + 1)); done; echo last >&2; exit 3'
    )
    const done = await install(t, { shell, data: { prescript: script } })
    failed(
      t,
      done,
      'prescript',
      /^installer\.failed: prescript: the prescript ended with status 3; it printed: /
    )
    const lines = Array.from({ length: 19 }, (_, i) => `line ${282 + i}`)
    t.equal(printed(done.controller.states.at(-1)), [...lines, 'last'].join(' | '))
    t.match(
      done.run.output,
      /^line 1\nline 2\n[\s\S]*^line 300\nlast\n[\s\S]*FAILED in step prescript/m,
      'all of it is on the console'
    )
  })
}

/** What scripts print, and what the report has of it. */
const outputs: Readonly<Record<string, readonly [script: string, told: RegExp | undefined]>> = {
  nothing: ['exit 4', undefined],
  'only blank lines': ["printf '\\n  \\n\\t\\n'; exit 4", undefined],
  'no end of line': ["printf 'mkfs: no such disk'; exit 4", /^mkfs: no such disk$/],
  'colours and a bell': ["printf '\\033[31;1mred\\033[0m \\007bell\\n'; exit 4", /^red bell$/],
  'a bar of progress': ["printf '1%%\\r50%%\\rfull\\n'; exit 4", /^1% \| 50% \| full$/],
  'bytes that are no text': ["printf 'a\\377\\300b\\303\\244\\n'; exit 4", /^a\ufffd\ufffdb\u00e4$/],
  'a quotation': [`printf '"q" \\\\ {"x": 1}\\n'; exit 4`, /^"q" \\ \{"x": 1\}$/],
  'the token of the node': [
    'echo "x-access-tokens: $SVC_TOKEN $SVC_TOKEN"; exit 4',
    /^x-access-tokens: \*{8} \*{8}$/
  ],
  'a line without end': ["yes x | head -n 2000000 | tr -d '\\n'; echo; exit 4", /^x{800,960}$/],
  'more than fits': [
    'i=0; while [ $i -lt 40 ]; do echo "$i $(printf %0100d $i)"; i=$((i + 1)); done; exit 4',
    / \| 39 0+39$/
  ],
  'megabytes of lines': ['yes y | head -n 2500000; echo z; exit 4', /^(y \| ){19}z$/]
}

/** Those in which bash works with other programs than busybox's. */
const byBash = new Set(['colours and a bell', 'bytes that are no text', 'a line without end'])

for (const shell of shells)
  for (const [name, [script, told]] of Object.entries(outputs).filter(
    ([name]) => everyCase(shell) || byBash.has(name)
  ))
    t.test(`a failed script that prints ${name}, ${shell}`, async t => {
      const done = await install(t, { shell, data: { prescript: base64(script) } })
      failed(t, done, 'prescript', /ended with status 4/)
      const state = done.controller.states.at(-1) ?? ''
      t.ok([...state].length <= 1024, 'as long as a state may be')
      t.notMatch(state, /[\0-\x1f\x7f]/)
      if (told === undefined) t.equal(printed(state), undefined)
      else t.match(printed(state), told)
    })

for (const shell of shells) {
  t.test(`a script that is stopped, or leaves a process that holds its output, ${shell}`, async t => {
    const stopped = base64('echo before; kill -TERM $PPID; sleep 0.3')
    const signal = await install(t, { shell, data: { prescript: stopped } })
    failed(t, signal, 'prescript', /: stopped by a signal; it printed: before$/)
    const held = base64('setsid sleep 4500 & echo held; exit 4')
    const leaving = await install(t, { shell, data: { prescript: held } })
    failed(t, leaving, 'prescript', /; it printed: held$/)
  })

  if (everyCase(shell))
    t.test(`without the programs for it, output goes to the console as before, ${shell}`, async t => {
      const data = { prescript: base64('echo words; exit 4') }
      const done = await install(t, { shell, without: ['mkfifo'], programs: { mkfifo: 'exit 1' }, data })
      failed(t, done, 'prescript', /ended with status 4/)
      t.match(done.run.output, /^words$/m)
    })

  t.test(`the log of the installation is in the image, ${shell}`, async t => {
    const much = 'yes y | head -n 3000000'
    const scripts = { prescript: base64('echo the first'), postscript: base64(`echo the second; ${much}`) }
    const done = await install(t, { shell, data: scripts })
    completed(t, done)
    const file = 'var/log/svc-install.log'
    t.match(
      done.machine.read(file),
      /^svc: step started\n[\s\S]*^the first\nsvc: step partscript\n[\s\S]*^svc: step unpack\n[\s\S]*^the second\ny\n/m
    )
    const { mode, size } = statSync(done.machine.image(file))
    t.equal(mode & 0o777, 0o600)
    t.ok(size <= 2.1 * 1024 * 1024, 'it has a bound')
  })
}
