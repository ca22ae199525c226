import { execFileSync } from 'node:child_process'
import { linkSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { base64 } from '../support/install-data.js'
import { scratch } from '../support/scratch.js'
import { completed, failed, install } from './install.js'
import { allShells } from './installing-node.js'
import { packImage } from './packed-image.js'

/** Names as tar quotes them in its messages, and as it does not. */
const names = [
  'plain',
  'a b',
  "quo'te",
  'co:lon',
  'ümlaut',
  'back\\slash',
  'dq"x',
  'new\nline',
  '-rf',
  '\\303',
  ' end '
]

/** The archive of an image whose /usr and /etc have hard links to each other. */
function linked(t: Test): Buffer {
  const root = scratch(t)
  const write = (path: string, text: string) => {
    mkdirSync(join(root, dirname(path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  write('etc/os-release', 'ID=test\n')
  for (const name of names) {
    write(`etc/${name}`, `content of ${name}`)
    mkdirSync(join(root, 'usr/lib'), { recursive: true })
    linkSync(join(root, 'etc', name), join(root, 'usr/lib', name))
    linkSync(join(root, 'etc', name), join(root, 'etc', `${name}2`))
  }
  symlinkSync('os-release', join(root, 'etc/link'))
  linkSync(join(root, 'etc/link'), join(root, 'usr/link'))
  return execFileSync('tar', ['-C', root, '-czf', '-', './etc', './usr'], { maxBuffer: 2 ** 24 })
}

const partscript = base64(
  'mount -t tmpfs root /sysroot && mkdir /sysroot/usr && mount -t tmpfs usr /sysroot/usr'
)

// rules 4.15
for (const shell of allShells.filter(shell => shell !== 'ash'))
  t.test(`hard links across the file systems of a partscript are copied, ${shell}`, async t => {
    const done = await install(t, {
      shell,
      data: { partscript },
      answers: { '/files/rocky9.tar.gz': linked(t) },
      edit: script => script.replace(/\nfinish\(\) \{\n/, '$&  mkdir /kept && cp -a /sysroot/usr /kept/\n')
    })
    completed(t, done)
    for (const name of names) {
      const copy = join(done.machine.root, 'kept/usr/lib', name)
      t.equal(readFileSync(copy, 'utf8'), `content of ${name}`, JSON.stringify(name))
      t.equal(done.machine.read(`etc/${name}2`), `content of ${name}`)
      const [one, other] = [name, `${name}2`].map(name => statSync(done.machine.image(`etc/${name}`)).ino)
      t.equal(one, other, 'a link in one file system is one')
    }
    t.match(
      done.run.output,
      `hard links to another file system, which are copies now: ${names.length + 1}, such as `
    )
    t.notMatch(done.run.output, 'Cannot hard link')
  })

// rules 4.15
t.test('what else fails is no hard link', async t => {
  // A file where the image has a directory.
  const broken = base64(
    'mount -t tmpfs root /sysroot && mkdir /sysroot/usr && mount -t tmpfs usr /sysroot/usr && mkdir -p /sysroot/etc/plain/x'
  )
  const answers = { '/files/rocky9.tar.gz': linked(t) }
  failed(
    t,
    await install(t, { shell: 'dash', data: { partscript: broken }, answers }),
    'unpack',
    /etc\/plain: Cannot (open|hard link)/
  )
  const busybox = await install(t, { shell: 'ash', data: { partscript }, answers })
  failed(
    t,
    busybox,
    'unpack',
    /can't create hardlink .*hard links across file systems need GNU tar in the image/
  )
})

// rules 4.15
t.test('an immutable file of an earlier installation is named, with the way out', async t => {
  for (const shell of ['bash', 'ash'] as const)
    for (const [attribute, path] of [
      ['+i', 'etc/os-release'],
      ['+i', 'etc'],
      ['+a', 'etc']
    ] as const) {
      const disk = scratch(t)
      mkdirSync(join(disk, 'etc'))
      writeFileSync(join(disk, 'etc/os-release'), 'old')
      t.teardown(() => execFileSync('chattr', ['-i', '-a', join(disk, path)]))
      execFileSync('chattr', [attribute, join(disk, path)])
      const done = await install(t, {
        shell,
        data: { partscript: base64('mount -o bind /disk /sysroot') },
        answers: { '/files/rocky9.tar.gz': packImage() },
        prepare: machine => {
          machine.mkdir('disk')
          execFileSync('mount', ['-o', 'bind', disk, join(machine.root, 'disk')])
          t.teardown(() => execFileSync('umount', [join(machine.root, 'disk')]))
        }
      })
      failed(
        t,
        done,
        'unpack',
        /etc(\/[a-z-]*)?(: |').*immutable\? Let the partscript make the file system anew, or chattr/
      )
    }
})
