import { createHash } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import t from 'tap'
import { base64 } from '../support/install-data.js'
import { installLibrary } from '../support/install-script.js'
import { type Answer, truncated } from './fake-controller.js'
import { completed, failed, install, type Plan } from './install.js'
import { allShells, everyCase, type Setup, shells } from './installing-node.js'

// They wait more than they work.
t.jobs = 4

const text = installLibrary()
const library = createHash('sha256').update(text).digest('hex')
const path = `/boot/library/${library}`
/** An installation with a script that names the library, at which the controller answers this. */
const shared = (answer: Answer, plan: Plan) => ({
  ...plan,
  data: { library, ...plan.data },
  answers: { [path]: answer, ...plan.answers }
})
/** It is tried once, not five times. */
const once = (script: string) => script.replace('library_pause=1\n', 'library_pause=16\n')

const downloaders: Record<string, Setup> = {
  ...Object.fromEntries(allShells.map(shell => [shell, { shell }])),
  'bash with GNU wget': { shell: 'bash', without: ['curl'] },
  'dash without sha256sum': { shell: 'dash', without: ['sha256sum'] }
}

for (const [name, setup] of Object.entries(downloaders)) {
  // rules 4.27
  t.test(`a node installs with the shared functions, ${name}`, async t => {
    const data = { prescript: base64('[ -e /svctmp/library ] || echo gone\n') }
    const done = await install(t, shared(text, { ...setup, data }))
    completed(t, done)
    t.strictSame(done.controller.gets(), [path, '/files/rocky9.tar.gz'])
    t.equal(done.machine.read('etc/os-release'), 'ID=test\n')
    t.match(done.run.output, /^gone$/m, 'its memory is free')
    t.strictSame(done.controller.states, [
      'installer.started',
      'installer.prescript',
      'installer.partscript',
      'installer.download',
      'installer.unpack',
      'installer.network',
      'installer.completed'
    ])
  })
}

for (const shell of shells) {
  const hostile: Record<string, Answer> = {
    'another text': `${text}\n: > /ran\n`,
    'a part of it': Buffer.from(text.slice(0, text.length / 2)),
    nothing: ''
  }
  for (const [what, answer] of Object.entries(hostile).filter(
    ([what]) => everyCase(shell) || what === 'another text'
  ))
    t.test(`${what} in its place is refused, and no line of it is run, ${shell}`, async t => {
      const done = await install(t, shared(answer, { shell, edit: once }))
      failed(t, done, 'started', /wrong checksum of http:\S+\/boot\/library\/[\da-f]{64}: [\da-f]{64}$/)
      t.notOk(done.machine.has('ran'))
      t.strictSame(done.controller.gets(), [path])
      t.notOk(done.machine.has('result/etc'))
    })

  t.test(`one that the controller does not have is a failure, and the reason, ${shell}`, async t => {
    const done = await install(t, { shell, data: { library }, edit: once })
    failed(t, done, 'started', /cannot fetch http:\S+\/boot\/library\/[\da-f]{64}: .*404/)
  })

  t.test(`it is asked for again when it was cut, and when the controller restarts, ${shell}`, async t => {
    let asked = 0
    const answer = (response: ServerResponse) => {
      asked++
      if (asked === 1) response.destroy()
      else if (asked === 2) (truncated(Buffer.from(text)) as (r: ServerResponse) => void)(response)
      else response.writeHead(200, { 'content-length': Buffer.byteLength(text) }).end(text)
    }
    const done = await install(t, shared(answer, { shell }))
    completed(t, done)
    t.equal(asked, 3)
  })
}

// bash goes on after an error in what it reads.
t.test('one that cannot be read to its end is a failure', async t => {
  const broken = text.replace(/^_LIBRARY=whole$/m, 'labels() {\n_LIBRARY=whole')
  const sha256 = createHash('sha256').update(broken).digest('hex')
  const done = await install(t, {
    shell: 'bash',
    data: { library: sha256 },
    answers: { [`/boot/library/${sha256}`]: broken }
  })
  failed(t, done, 'started', /\/boot\/library\/[\da-f]{64} is not a script that can be read/)
})

// Busybox always has its own.
t.test('without a program that checks it, nothing is fetched', async t => {
  const done = await install(t, shared(text, { shell: 'dash', without: ['sha256sum', 'openssl'] }))
  failed(t, done, 'started', /neither sha256sum nor openssl is in this initramfs: the functions/)
  t.strictSame(done.controller.gets(), [])
})
