import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { base64 } from '../support/install-data.js'
import { runningFiles } from '../support/install-script.js'
import { scratch } from '../support/scratch.js'
import { completed, failed, install, type Plan } from './install.js'
import { shells } from './installing-node.js'
import { packImage } from './packed-image.js'

/** An image whose programs are busybox's: put there before the image is unpacked. */
const partscript = base64(`mount -t tmpfs image /sysroot
mkdir -p /sysroot/usr/bin /sysroot/var/tmp
cp /usr/bin/busybox /sysroot/usr/bin/busybox
for name in sh tar stat id mktemp find cmp cat chown chmod mv mkdir rm rmdir readlink sync; do
  ln -s busybox /sysroot/usr/bin/$name
done
`)
const users = {
  'etc/passwd': 'root:x:0:0:root:/root:/bin/sh\nslurm:x:64030:64030::/:/bin/sh\n',
  'etc/group': 'root:x:0:\nslurm:x:64031:\n'
}
const image = packImage(
  {
    ...users,
    'etc/motd': 'of the image',
    'etc/absolute': '-> /srv',
    'etc/upwards': '-> ../../../../../../../srv',
    'etc/file': '-> /outside',
    'srv/.keep': ''
  },
  'tar.gz',
  0
)

/**
 * The answer of a controller: a tar as svcd makes it, with names of users that this machine need not know.
 */
function tarOf(test: Test, files: Readonly<Record<string, string>>, owner = 'slurm:64999'): Buffer {
  const directory = scratch(test)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, 'tree', path)), { recursive: true })
    writeFileSync(join(directory, 'tree', path), text)
  }
  const as = [`--owner=${owner}`, `--group=${owner}`, '--mode=0640', '--format=ustar']
  execFileSync('tar', ['-cf', '../all.tar', ...as, ...Object.keys(files)], { cwd: join(directory, 'tree') })
  return readFileSync(join(directory, 'all.tar'))
}

const plan = (answer: Plan['answers'], shell: Plan['shell']): Plan => ({
  shell,
  answers: { '/files/rocky9.tar.gz': image, ...answer },
  data: { partscript, files: true, files_token: 'the.running.token' }
})

for (const shell of shells) {
  // rules 4.25
  t.test(`the installation puts the node's files into the image, ${shell}`, async t => {
    const tar = tarOf(t, {
      'etc/motd': 'of node001',
      'etc/absolute/one': 'one',
      'etc/upwards/two': 'two',
      'etc/file': 'three',
      'new/deep/four': 'four'
    })
    const done = await install(t, plan({ '/boot/files/node001': tar }, shell))
    completed(t, done)
    t.ok(done.controller.states.includes('installer.files'))
    const { machine } = done
    const request = done.controller.requests.find(({ url }) => url === '/boot/files/node001')
    t.equal(request?.headers['x-access-tokens'], 'the.node.token')
    for (const [path, text] of Object.entries({
      'etc/motd': 'of node001',
      'srv/one': 'one',
      'srv/two': 'two',
      'etc/file': 'three',
      'new/deep/four': 'four'
    })) {
      t.equal(machine.read(path), text, path)
      const { mode, uid, gid } = statSync(machine.image(path))
      t.strictSame([mode & 0o7777, uid, gid], [0o640, 64030, 64031], "the image's users own them")
    }
    t.notOk(machine.has('srv/one') || machine.has('outside'), 'nothing is outside of the image')
    t.equal(
      machine.read('etc/svc/files.conf'),
      `url ${done.controller.place.url}\nnode node001\ntoken the.running.token\ninsecure \n`
    )
    t.equal(statSync(machine.image('etc/svc/files.conf')).mode & 0o777, 0o600)
    t.equal(statSync(machine.image('usr/local/sbin/svc-files')).mode & 0o777, 0o755)
    t.equal(machine.read('usr/local/sbin/svc-files'), runningFiles())
    t.equal(
      readlinkSync(machine.image('etc/systemd/system/timers.target.wants/svc-files.timer')),
      '../svc-files.timer'
    )
    t.notOk(existsSync(machine.image('etc/svc/files.tar')))
    t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
  })

  t.test(`a file that cannot be had or placed fails the step with its reason, ${shell}`, async t => {
    const message = 'node node001: file motd cannot be rendered: motd:2:4: x'
    const refused = plan(
      {
        '/boot/files/node001': response =>
          response
            .writeHead(503, { 'Content-Type': 'application/json' })
            .end(`${JSON.stringify({ message })}\n`)
      },
      shell
    )
    // Busybox's wget does not tell the body of a refusal.
    failed(
      t,
      await install(t, refused),
      'files',
      shell === 'ash' ? /503/ : /503: node node001: file motd .* motd:2:4: x/
    )
    const unknown = tarOf(t, { 'etc/motd': 'x' }, 'stranger:2097151')
    const reason =
      /the files cannot be placed: .*\/etc\/motd: this system does not know its owner or its group/
    const done = await install(t, plan({ '/boot/files/node001': unknown }, shell))
    failed(t, done, 'files', reason)
    t.equal(done.machine.read('etc/motd'), 'of the image', 'the file of the image is left alone')
  })
}
