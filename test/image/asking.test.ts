// rules 9.15
import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { ControllerQuestions } from '../../lib/auth/controller-proof.js'
import { LostError, runThere, UnreachedError } from '../../lib/image/errands/asking.js'
import { type Errand, type Message, numbered } from '../../lib/image/errands/errand.js'
import type { JsonValue } from '../../lib/json.js'
import { impostor } from '../support/impostor.js'

const key = Buffer.alloc(32, 1)
const errand: Errand = {
  ...{ to: 'c2', writer: 'http://c1', revision: 5 },
  task: { kind: 'pack', osimage: 'compute', wish: {}, check: false }
}

/** What comes of an errand to something that answers so; `line`: a line that a controller would say. */
async function asked(
  t: Test,
  answer: (response: ServerResponse, line: (number: number, message: Message) => string) => void
) {
  const questions = new ControllerQuestions(key, Date.now)
  const { url } = await impostor(t, ({ headers }, response) =>
    answer(response, (number, message) => {
      const said = JSON.stringify(message)
      return `${JSON.stringify({ said, proof: questions.proofOf(headers, numbered(number, said)) })}\n`
    })
  )
  const came: unknown[] = []
  const end = runThere(
    url,
    errand,
    { trust: { rejectUnauthorized: true }, proofs: questions },
    {
      signal: new AbortController().signal,
      line: text => came.push(text),
      progress: fraction => came.push(fraction),
      result: (name, value) => came.push([name, value])
    }
  )
  return { end, came }
}

const done: Message = { end: { done: { imagefile: 'x' } } }

t.test('what is said is passed on, and what came of it is the answer', async t => {
  const { end, came } = await asked(t, (response, line) =>
    response.end(
      line(0, { line: 'packing' }) +
        line(1, {}) +
        line(2, { progress: 0.5 }) +
        line(3, { result: ['bytes', 7] }) +
        line(4, done)
    )
  )
  t.same(await end, { imagefile: 'x' })
  t.same(came, ['packing', 0.5, ['bytes', 7]])
})

t.test('a failure there is one here, with its status', async t => {
  const { end } = await asked(t, (response, line) =>
    response.end(line(0, { end: { failed: { message: 'no room', status: 503 } } }))
  )
  await t.rejects(end, { message: 'no room', status: 503 })
})

t.test('nothing is taken from who is on the way', async t => {
  const forged = { said: JSON.stringify({ result: ['k', 1] }), proof: '0'.repeat(64) }
  const ways: Record<string, (line: (number: number, message: Message) => string) => string> = {
    'a line of its own': line => `${JSON.stringify(forged)}\n${line(0, done)}`,
    'an empty line': line => `\n${line(0, done)}`,
    'no JSON': () => 'x\n',
    'a line that is left out': line => line(1, done),
    'a line twice': line => line(0, { line: 'a' }) + line(0, { line: 'a' }),
    'another order': line => line(0, {}) + line(2, { line: 'b' }) + line(1, { line: 'a' }),
    'an end that is cut off': line => line(0, { line: 'a' })
  }
  for (const [what, text] of Object.entries(ways)) {
    const { end, came } = await asked(t, (response, line) => response.end(text(line)))
    t.ok((await end.catch(error => error)) instanceof LostError, what)
    t.ok(
      came.every(each => each === 'a'),
      what
    )
  }
})

t.test('of a release that does no work for others: nothing was begun', async t => {
  const { end } = await asked(t, response => response.writeHead(404).end('{"message":"there is no route"}'))
  t.ok((await end.catch(error => error)) instanceof UnreachedError)
})

t.test('nobody is there: nothing was begun', async t => {
  const questions = new ControllerQuestions(key, Date.now)
  const nothing = () => undefined
  const end = runThere(
    'http://127.0.0.1:9',
    errand,
    { trust: { rejectUnauthorized: true }, proofs: questions },
    { signal: new AbortController().signal, line: nothing, progress: nothing, result: nothing }
  )
  t.ok((await end.catch(error => error)) instanceof UnreachedError)
})

t.test('results that are nested deeply are left out, and a line says so', async t => {
  const deep = (levels: number) => JSON.parse(`${'['.repeat(levels)}1${']'.repeat(levels)}`)
  const results: [string, JsonValue][] = [
    ['n1', { state: 'done', changes: 3 }],
    ['four', deep(4)],
    ['five', deep(5)],
    ['object', { a: { b: { c: { d: {} } } } }],
    ['deep', deep(1000)]
  ]
  const { end, came } = await asked(t, (response, line) =>
    response.end(
      results.map((result, i) => line(i, { result })).join('') +
        line(results.length, { end: { done: 'all' } })
    )
  )
  t.equal(await end, 'all')
  t.same(came, [
    ...results.slice(0, 2),
    ...['five', 'object', 'deep'].map(key => `result ${key}: more than 4 levels deep, left out`)
  ])
})
