import { createHash } from 'node:crypto'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { Library } from '../../lib/boot/library.js'
import { Templates } from '../../lib/template/templates.js'

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

/** A library of a directory of its own, and a clock that the test moves. */
function made(t: Test) {
  const directory = t.testdir({ install: { lib: {} } })
  const clock = { ms: 5000 }
  const now = () => clock.ms
  const log: string[] = []
  const library = new Library({
    templates: new Templates({ directory, now }),
    log: createLog('info', line => log.push(line)),
    now
  })
  const write = (text: string, name = 'templ_library.cfg') => {
    mkdirSync(join(directory, 'install'), { recursive: true })
    writeFileSync(join(directory, 'install', name), text)
    clock.ms += 1000
  }
  return { directory, library, log, write, clock }
}

// rules 4.27
t.test('it is named by its sha256, and a change of a part is seen within two seconds', t => {
  const { library, write, clock } = made(t)
  write('one() {\n  true\n}\n', 'lib/one.sh')
  write("# äöü\n{% include 'install/lib/one.sh' %}\n")
  const first = '# äöü\none() {\n  true\n}\n\n'
  t.equal(library.sha256(), sha256(first))
  t.equal(library.text(sha256(first))?.toString(), first)
  write('one() {\n  false\n}\n', 'lib/one.sh')
  clock.ms += 1000
  const second = first.replace('true', 'false')
  t.equal(library.sha256(), sha256(second))
  t.equal(library.text(sha256(second))?.toString(), second)
  t.equal(library.text(sha256(first))?.toString(), first, 'scripts that are on their way name it')
  t.equal(library.text(sha256('x')), undefined)
  t.end()
})

t.test('an older text is dropped after an hour, though nothing changes any more', t => {
  const { library, write, clock } = made(t)
  write('# password\n')
  const old = library.sha256()
  write('# none\n')
  const present = library.sha256()
  clock.ms += 3_599_000
  t.ok(library.text(old))
  clock.ms += 1000
  t.equal(library.text(old), undefined)
  t.ok(library.text(present))
  library.sha256()
  t.equal(library.sha256(), present)
  t.end()
})

t.test('a part that only asks whether there is a variable is not shared either', t => {
  for (const part of ["# {{ imagesum|default('') }}\n", '{% if insecure is defined %}# x\n{% endif %}']) {
    const { library, log, write } = made(t)
    write(part, 'lib/part.sh')
    write("{% include 'install/lib/part.sh' %}\n# fine\n")
    t.equal(library.sha256(), '', part)
    t.match(log, [/warn install scripts are not shared: .*asks for (imagesum|insecure)/])
  }
  const { library, log, write } = made(t)
  write("{% set mine = 'x' %}{% if mine is defined %}# {{ mine }}\n{% endif %}")
  t.not(library.sha256(), '', 'its own variables count as none')
  t.strictSame(log, [])
  t.end()
})

t.test('the present text and the seven before it are kept', t => {
  const { library, write } = made(t)
  const names = Array.from({ length: 12 }, (_, i) => {
    write(`# ${i}${'x'.repeat(i)}\n`)
    return library.sha256()
  })
  t.strictSame(
    names.map(name => library.text(name) !== undefined),
    names.map((_, i) => i >= 4)
  )
  write(`# 5${'x'.repeat(5)}\n`)
  t.equal(library.sha256(), names[5], 'one that comes again')
  write('# new\n')
  library.sha256()
  t.ok(library.text(names[5] as string), 'counts as new')
  t.end()
})

t.test(
  'without a text of its own there is none: no template, one that needs a node, one that is broken',
  t => {
    const { directory, library, log, write, clock } = made(t)
    t.equal(library.sha256(), '')
    write('# of {{ node }}\n')
    t.equal(library.sha256(), '')
    clock.ms += 5000
    t.equal(library.sha256(), '')
    t.match(log, [/warn install scripts are not shared: .*install\/templ_library\.cfg:1:9: .*node/])
    t.equal(log.length, 1, 'the log says it once')
    write('{% if %}')
    t.equal(library.sha256(), '')
    write('# fine\n')
    t.equal(library.sha256(), sha256('# fine\n'))
    rmSync(join(directory, 'install/templ_library.cfg'))
    clock.ms += 1000
    t.equal(library.sha256(), '')
    t.equal(library.text(''), undefined)
    t.ok(library.text(sha256('# fine\n')), 'for scripts on their way')
    t.end()
  }
)
