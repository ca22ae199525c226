import t from 'tap'
import { BAD_INCLUDES, FAILS, INCLUDES, RENDERS, STRICTER } from './cases.js'
import { DATA } from './data.js'
import { Generator } from './generator.js'
import { type Answer, Reference } from './reference.js'
import { render } from './render.js'

const RANDOM_TEMPLATES = 600

const reference = await Reference.start()
t.teardown(() => reference.stop())

async function both(files: Readonly<Record<string, string>>): Promise<{ theirs: Answer; ours: Answer }> {
  const theirs = await reference.render(files, 'main', DATA)
  return { theirs, ours: render(files, 'main', DATA) }
}

// rules 4.20
t.test('a template that jinja2 renders gives the same bytes', async t => {
  for (const files of [...RENDERS.map(main => ({ main })), ...INCLUDES]) {
    const { theirs, ours } = await both(files)
    t.ok('text' in theirs, `jinja2 renders ${files.main}`, { theirs })
    t.strictSame(ours, theirs, files.main)
  }
})

// rules 4.20
t.test('a template that jinja2 refuses is refused', async t => {
  for (const files of [...FAILS.map(main => ({ main })), ...BAD_INCLUDES]) {
    const { theirs, ours } = await both(files)
    t.ok('error' in theirs, `jinja2 refuses ${files.main}`, { theirs })
    t.ok('error' in ours, `refused: ${files.main}`, { ours })
  }
})

t.test('what is refused although jinja2 renders it', async t => {
  for (const [main, says] of STRICTER) {
    const { theirs, ours } = await both({ main })
    t.ok('text' in theirs, `jinja2 renders ${main}`, { theirs })
    t.ok('error' in ours && ours.error.includes(says), `refused, as ${says}: ${main}`, { ours })
    t.match(ours, { error: /^main:\d+:\d+: / }, main)
  }
})

/** Further reasons, in more words, for which svcd refuses what jinja2 renders. */
const ON_PURPOSE = [
  /: (a list|a map|the result of .*) cannot be printed$/,
  // what is gone through once
  /: (cannot compare )?the result of /,
  /: a row of comparisons is not part of svcd's templates/,
  /: \w+ is set below a block that reads it/,
  /: replace has no text to look for$/,
  /: a string cannot be taken apart/,
  // undefined values that are kept
  /: '\w+' is undefined$/,
  / has no item /
]

/** Whether a refusal is one of those above; the generator cannot always avoid them. */
const isOnPurpose = (error: string) =>
  STRICTER.some(([, says]) => error.includes(says)) || ON_PURPOSE.some(reason => reason.test(error))

t.test('random templates: the same bytes, or refused by both', async t => {
  // The same templates in each run; other ones in the long tests.
  const seed = Number(process.env.TEMPLATE_SEED ?? (process.env.SVCD_LONG ? Date.now() % 2 ** 32 : 43131533))
  const generator = new Generator(seed)
  const hint = `again with TEMPLATE_SEED=${seed}`
  let rendered = 0
  let stricter = 0
  for (let i = 0; i < RANDOM_TEMPLATES; i++) {
    const files = generator.files()
    const { theirs, ours } = await both(files)
    if ('text' in theirs) rendered++
    const isSame = 'text' in theirs ? 'text' in ours && ours.text === theirs.text : 'error' in ours
    if (isSame) continue
    if ('text' in theirs && 'error' in ours && isOnPurpose(ours.error)) stricter++
    else t.fail(`${hint}: ${JSON.stringify(files)}`, { theirs, ours })
  }
  t.ok(stricter < RANDOM_TEMPLATES / 10, `few are refused on purpose: ${stricter}; ${hint}`)
  t.ok(rendered > RANDOM_TEMPLATES / 4, `enough of them are rendered at all: ${rendered}; ${hint}`)
  t.ok(rendered < RANDOM_TEMPLATES, `some are refused; ${hint}`)
})
