import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { TemplateError } from '../../lib/template/errors.js'
import { templates } from '../services/rendered.js'
import { proof } from '../support/proof.js'
import { RENDERS } from '../template/cases.js'
import { DATA } from '../template/data.js'
import { render } from '../template/render.js'
import { mutated } from './mutate.js'
import { fuzzSeed, Random } from './random.js'

// Templates that are damaged: each is rendered or refused with its place, in a bounded time; no other error
// comes out. That what is rendered is what jinja2 renders is shown by test/template/differential.test.ts.

const long = process.env.SVCD_LONG !== undefined
const rounds = Number(process.env.FUZZ_TEMPLATES ?? (long ? 200_000 : 1000))
const random = new Random(fuzzSeed())
const again = `again with FUZZ_SEED=${random.seed}`

const shipped = readdirSync(templates, { recursive: true, withFileTypes: true })
  .filter(entry => entry.isFile())
  .map(entry => readFileSync(join(entry.parentPath, entry.name), 'utf8'))
  // A piece of a long one has all that the compiler looks at.
  .flatMap(text => text.match(/.{1,1500}/gs) ?? [])
const words = [
  '{{',
  '}}',
  '{%',
  '%}',
  '{#',
  '#}',
  '{%-',
  '-%}',
  '|',
  '(',
  ')',
  '[',
  ']',
  "'",
  '"',
  '~',
  ' if ',
  ' for '
]
const more = [
  ' in ',
  ' is ',
  ' not ',
  ' and ',
  'else',
  'endif',
  'endfor',
  'set ',
  'raw',
  'endraw',
  'loop.index',
  '**',
  '//'
]
const sources = [...RENDERS, ...shipped]
const pieces = [
  ...sources,
  ...words.map(word => word.repeat(3)),
  ...more,
  '('.repeat(5000),
  '{% if x %}'.repeat(2000)
]

/** A damaged template: bytes changed, and words of the language put where they do not belong. */
function damaged(): string {
  let text = random.is(0.5) ? mutated(random, random.pick(sources), pieces) : random.pick(sources)
  for (let left = random.below(4); left > 0; left--) {
    const at = random.below(text.length + 1)
    text = text.slice(0, at) + random.pick(random.is(0.02) ? pieces : [...words, ...more]) + text.slice(at)
  }
  return text
}

// rules 4.11, 4.20
t.test('damaged templates are rendered or refused with their place', async t => {
  const faults: string[] = []
  let refused = 0
  let slowestMs = 0
  let i = 0
  for (; i < rounds && faults.length < 5; i++) {
    const source = damaged()
    const begun = performance.now()
    try {
      const answer = render({ main: source }, 'main', DATA)
      if ('error' in answer) refused++
      if ('error' in answer && !/^main:\d+:\d+: ./.test(answer.error))
        faults.push(`${answer.error}: ${source}`)
    } catch (error) {
      faults.push(
        `${error instanceof TemplateError ? '' : 'no TemplateError: '}${error}: ${JSON.stringify(source)}`
      )
    }
    slowestMs = Math.max(slowestMs, performance.now() - begun)
  }
  proof('template compiler', {
    tried: i,
    crashes: faults.length,
    note: `seed ${random.seed}, ${refused} refused, slowest ${slowestMs.toFixed()} ms`
  })
  t.same(faults, [], again)
  t.ok(refused > i / 5 && refused < i, `some are rendered, some refused: ${refused} of ${i}; ${again}`)
  // Generous: a template is small, and the machine may be busy.
  t.ok(slowestMs < 5000, `the slowest took ${slowestMs.toFixed()} ms; ${again}`)
})
