// Records of one machine: in the log with the objects in files, files at once with the objects elsewhere.
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Archive } from '../../lib/backup/archive.js'
import { addTexts } from '../../lib/backup/stored-files.js'
import { Notes, newNoteId } from '../../lib/image/notes.js'
import { openNotes } from '../../lib/services/swap.js'
import { FileMedium } from '../../lib/store/files/medium.js'
import { StoredFiles } from '../../lib/store/files/stored.js'
import { RecordMap } from '../../lib/store/record-map.js'
import { notesIn } from '../support/notes.js'
import { checkout } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { systemError, TestFiles } from './fixtures.js'

type Where = 'files' | 'elsewhere'
const both: readonly Where[] = ['files', 'elsewhere']

/** A controller on a state directory, with the objects in files or elsewhere. */
async function begin(t: Test, directory: string, where: Where) {
  const files = new TestFiles()
  const log: string[] = []
  const medium = new FileMedium({ directory, files, log: (_, line) => log.push(line) })
  t.teardown(() => medium.close())
  await medium.lock()
  if (where === 'files') {
    await medium.read()
    await medium.start(['node'])
  } else await medium.writeLogged(['node'])
  const notes = await Notes.open(memory => medium.openRecords('work', memory))
  const services = await openNotes(memory => medium.openRecords('services', memory))
  /** Ends it as a kill does: nothing is written any more. */
  const kill = async () => {
    files.before = () => {
      throw systemError('EIO')
    }
    await medium.close()
  }
  return { medium, files, log, notes, services, kill }
}

const pack = (...files: string[]) => ({ kind: 'pack', id: newNoteId(), files }) as const
const known = (serial: number) => ({ serials: { 'a.example': serial }, due: '', trial: undefined }) as const

for (const where of both) {
  t.test(`${where}: what was stored is there after a kill, and what was removed is not`, async t => {
    const directory = scratch(t)
    const one = await begin(t, directory, where)
    const [kept, gone] = [pack('a'), pack('b')]
    await Promise.all([one.notes.write(kept), one.notes.write(gone), one.services.set('dns', known(1))])
    await Promise.all([one.notes.drop(gone), one.services.set('dns', known(2))])
    await one.kill()
    t.strictSame(notesIn(directory), [kept.id])
    const two = await begin(t, directory, where)
    t.strictSame(two.notes.left, [kept])
    t.match(two.services.get('dns'), known(2))
    await two.notes.drop(kept)
    await two.medium.close()
    t.strictSame(readdirSync(join(directory, 'work')), [])
    t.strictSame(readdirSync(join(directory, 'services')), ['dns.json'])
  })

  t.test(`${where}: a note that fails is not there, and one that is not removed stays`, async t => {
    const directory = scratch(t)
    const one = await begin(t, directory, where)
    const [kept, failed] = [pack('a'), pack('b')]
    await one.notes.write(kept)
    one.files.before = () => {
      throw systemError('ENOSPC')
    }
    await t.rejects(one.notes.write(failed), /no note of work on images can be stored: .*ENOSPC/)
    await t.rejects(one.notes.drop(kept), /ENOSPC/)
    t.strictSame(one.notes.left, [kept])
    one.files.before = () => {}
    const next = pack('c')
    await one.notes.write(next)
    await one.kill()
    const { left } = (await begin(t, directory, where)).notes
    t.strictSame([...left].sort(byId), [kept, next].sort(byId))
  })

  t.test(`${where}: notes of earlier releases are read, and what is none is reported and stays`, async t => {
    const directory = scratch(t)
    const work = join(directory, 'work')
    mkdirSync(work)
    const note = pack('a')
    writeFileSync(join(work, `${note.id}.json`), JSON.stringify(note))
    const others = ['pack', 'tree'].map((kind, i) => ({ kind, id: `${i}`.repeat(16), target: 'x' }))
    const wrong = others.map(({ id }) => `${id}.json`).concat('0123456789abcdef.json')
    for (const other of others) writeFileSync(join(work, `${other.id}.json`), JSON.stringify(other))
    writeFileSync(join(work, '0123456789abcdef.json'), '{"kind"')
    for (const left of ['.2.json.0123456789ab', '2.json.4294967295'])
      writeFileSync(join(work, left), '{"kind"')
    const old = join(checkout, 'test/store/releases/1.0.0-killed/services')
    cpSync(old, join(directory, 'services'), { recursive: true })
    const { notes, services, log, medium } = await begin(t, directory, where)
    t.strictSame(notes.left, [note])
    for (const name of wrong) t.match(log.join('\n'), `${name} is no record, and is left alone`)
    await notes.drop(note)
    t.ok(Number.isInteger(Object.values(services.get('dns')?.serials ?? {})[0]))
    await medium.close()
    t.strictSame(readdirSync(work).sort(), wrong.sort())
  })
}

t.test(
  'what the log alone has becomes files once the objects are elsewhere, and never comes back',
  async t => {
    const directory = scratch(t)
    const one = await begin(t, directory, 'files')
    const note = pack('a')
    await one.medium.commit([{ type: 'node', name: 'n1', text: '{}\n', textBefore: undefined }])
    // A record of a table keeps the log from being cut.
    const values = await RecordMap.open(
      memory => one.medium.openRecords('node-status', memory),
      () => ({})
    )
    await values.set('n1', { node: 'n1', history: [] })
    await one.notes.write(note)
    await one.services.set('dns', known(1))
    await one.kill()
    const two = await begin(t, directory, 'elsewhere')
    t.strictSame(two.notes.left, [note])
    t.equal(readFileSync(join(directory, 'node/n1.json'), 'utf8'), '{}\n')
    await two.notes.drop(note)
    await two.services.set('dns', known(2))
    await two.medium.close()
    for (const where of both) {
      const again = await begin(t, directory, where)
      t.strictSame(again.notes.left, [], where)
      t.match(again.services.get('dns'), known(2), where)
      await again.medium.close()
    }
  }
)

// rules 11.12
t.test('a backup has what the log knows of the services, and no notes of work', async t => {
  const directory = scratch(t)
  const one = await begin(t, directory, 'files')
  await one.notes.write(pack('a'))
  await one.services.set('dns', known(1))
  const archive = new Archive(async () => {})
  await addTexts(
    archive,
    new StoredFiles(directory).recordFiles(() => {})
  )
  t.equal(archive.entries.get('state/services'), 1)
  t.notOk(archive.entries.has('state/work'))
})

// rules 11.12
t.test('the log of a backup brings no notes of another time', async t => {
  const directory = scratch(t)
  const one = await begin(t, directory, 'files')
  await one.notes.write(pack('a'))
  await one.services.set('dns', known(1))
  await one.kill()
  t.ok(existsSync(join(directory, 'work')))
  rmSync(join(directory, 'work'), { recursive: true })
  t.strictSame(
    [...new StoredFiles(directory).promised()].map(({ type }) => type),
    ['services']
  )
  const { notes, services } = await begin(t, directory, 'files')
  t.strictSame(notes.left, [])
  t.match(services.get('dns'), known(1))
})

const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1)
