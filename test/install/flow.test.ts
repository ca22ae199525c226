import { statSync } from 'node:fs'
import t from 'tap'
import { base64, installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { completed, exits, failed, image, install, startFakeController, without } from './install.js'
import { allShells, everyCase, InstallingNode, shells } from './installing-node.js'
import { packImage, sha256 } from './packed-image.js'

for (const shell of allShells) {
  t.test(`a node installs by http, ${shell}`, async t => {
    const done = await install(t, {
      shell,
      data: {
        imagesum: sha256(image),
        prescript: base64('echo "pre of $SVC_NODE to $_SYSTEMROOT"\n'),
        postscript: base64('#!/bin/sh\necho "$SVC_URL $_HOSTNAME" > "$_SYSTEMROOT/etc/post"\n')
      }
    })
    completed(t, done)
    const { controller, machine, run } = done
    t.strictSame(controller.states, [
      'installer.started',
      'installer.prescript',
      'installer.partscript',
      'installer.download',
      'installer.unpack',
      'installer.network',
      'installer.postscript',
      'installer.completed'
    ])
    t.match(run.output, 'pre of node001 to /sysroot')
    t.equal(machine.read('etc/post'), `${controller.place.url} node001.cluster\n`)
    t.equal(machine.read('etc/os-release'), 'ID=test\n')
    const { uid, gid } = statSync(machine.image('etc/os-release'))
    t.strictSame([uid, gid], [1234, 1235], 'owners of the image are kept as numbers')
    t.match(run.mounts, 'svcroot /sysroot tmpfs')
    t.notOk(machine.has('svctmp/image'), 'the packed image does not stay in memory')
  })
}

for (const shell of shells) {
  // These two steps have nothing to undo after a failure.
  const { edit = String } = without({ shell }, 'inventory', 'network')
  t.test(`a second run after a failed first installs cleanly, ${shell}`, async t => {
    const controller = await startFakeController(t)
    const machine = new InstallingNode(t, { shell })
    const broken = installData({ ...controller.place, postscript: base64('touch $_SYSTEMROOT/old; exit 7') })
    const disk = base64(
      'mount -t tmpfs /dev/fake1 /sysroot; mkdir /sysroot/home; mount -t tmpfs /dev/fake2 /sysroot/home'
    )
    const fine = installData({ ...controller.place, partscript: disk })
    const all = [broken, fine, fine, installData(controller.place)]
    const runs = await machine.run(...all.map(data => edit(installScript(data))))
    exits(t, runs, [1, 0, 0, 0])
    t.equal(
      runs[2]?.mounts.match(/ \/sysroot/g)?.length,
      2,
      'mounts of the earlier run are undone, not stacked'
    )
    t.equal(runs[3]?.mounts.match(/ \/sysroot/g)?.length, 1)
    t.notOk(machine.has('result/old'), 'nothing of the failed run is left in the image')
    t.match(controller.states, [/started/, /part/, /download/, /unpack/, /postscript/, /failed: postscript/])
  })

  t.test(`a signal is a failure of the step that was running, ${shell}`, async t => {
    const done = await install(t, { shell, data: { prescript: base64('kill -TERM $PPID; sleep 0.2') } })
    failed(t, done, 'prescript', /signal/)
  })

  if (!everyCase(shell)) continue
  t.test(`whatever is mounted on /sysroot before the first run is used as it is, ${shell}`, async t => {
    const data = { prescript: base64('mount -t tmpfs -o size=9m mine /sysroot') }
    const done = await install(t, without({ shell, data }, 'inventory', 'network'))
    completed(t, done)
    t.match(done.run.mounts, 'mine /sysroot tmpfs')
    t.notMatch(done.run.mounts, 'svcroot')
  })

  t.test(`an installation does not depend on its reports, ${shell}`, async t => {
    const done = await install(t, {
      shell,
      prepare: (_, controller) => {
        let count = 0
        controller.onPost = (_, response) => response.writeHead(count++ < 2 ? 503 : 204).end()
      }
    })
    exits(t, [done.run], [0])
    t.match(done.run.output, "the status 'installer.started' could not be reported")
  })
}

t.test('under sh -e, from standard input, with odd variables in the environment', async t => {
  const controller = await startFakeController(t)
  const machine = new InstallingNode(t, {
    shell: 'bash',
    environment: { IFS: '/', LANG: 'tr_TR.UTF-8', SVC_URL: 'http://x' }
  })
  const script = installScript(installData(controller.place))
  machine.write('install.sh', script)
  const runs = await machine.run('sh -e < /install.sh\n')
  exits(t, runs, [0])
  t.equal(controller.states.at(-1), 'installer.completed')
})

// rules 4.15
t.test('a script that was cut off on its way does nothing', async t => {
  const controller = await startFakeController(t)
  const machine = new InstallingNode(t, { shell: 'ash' })
  const script = installScript(installData(controller.place)).trimEnd()
  const cuts = [0.2, 0.5, 0.9].map(part => script.slice(0, script.length * part))
  await machine.run(...cuts, script.slice(0, script.lastIndexOf('\n')))
  t.equal(controller.requests.length, 0)
  t.notOk(machine.has('sysroot'))
})

t.test('every suffix is unpacked', async t => {
  for (const [suffix, shell] of Object.entries({
    tar: 'ash',
    tgz: 'bash',
    'tar.gz': 'dash',
    'tar.bz2': 'ash',
    'tar.xz': 'ash',
    'tar.zst': 'bash'
  } as const)) {
    const imagefile = `it's an image.${suffix}`
    const url = `/files/${encodeURIComponent(imagefile).replaceAll("'", '%27')}`
    const plan = { shell, data: { imagefile }, answers: { [url]: packImage({}, suffix) } }
    const done = await install(t, without(plan, 'inventory', 'network'))
    completed(t, done)
    t.equal(done.machine.read('etc/os-release'), 'ID=test\n', suffix)
  }
})
