import t from 'tap'
import { Controller } from '../support/controller.js'
import { base64 } from '../support/install-data.js'
import { exits, startFakeController } from './install.js'
import { InstallingNode, shells } from './installing-node.js'

const source = '10.141.0.1'
/** Each script that an admin may have tells that it ran; the partscript as one that erases. */
const touch = (name: string) => base64(`#!/bin/sh\n: > /${name}\nmount -t tmpfs svcdisk /sysroot\n`)

// rules 6.15
for (const shell of shells)
  t.test(
    `no script of a rescue, and none of an installation after its boot, writes to a disk, ${shell}`,
    async t => {
      const nodes = await startFakeController(t)
      const c = await Controller.start(t, `http.url=${nodes.place.url}`)
      await c.cluster()
      await c.post('/config/osimage/compute', { imagefile: 'rocky9.tar.gz' })
      await c.post('/config/node/n1', {
        ...{ group: 'compute', localinstall: true, provision_method: 'http' },
        ...{ prescript: touch('pre'), partscript: touch('part'), postscript: touch('post') }
      })
      const script = async () => {
        const { text } = await c.get('/boot/install/n1', { token: null, source })
        const [, sum = ''] = /library '([0-9a-f]{64})'/.exec(text) ?? []
        nodes.files.set(`/boot/library/${sum}`, (await c.get(`/boot/library/${sum}`)).text)
        return text
      }
      const normal = await script()
      await c.post('/config/node/n1', { rescue: 'compute' })
      const rescue = await script()
      const run = async (cmdline: string, text: string) => {
        nodes.requests.length = 0
        const machine = new InstallingNode(t, { shell, environment: { SVC_NODE: 'n1' } })
        machine.write('cmdline', cmdline)
        const [one] = await machine.run(text)
        const touched = ['pre', 'part', 'post'].filter(name => machine.has(name))
        return { run: one as NonNullable<typeof one>, touched, last: nodes.states.at(-1), machine }
      }
      const booted = 'root=svc svc.service=0 svc.rescue=1 initrd=initrd.img\n'
      const well = await run(booted, rescue)
      exits(t, [well.run], [0])
      t.same(well.touched, [])
      t.equal(well.last, 'installer.completed: rescue')
      t.match(well.run.mounts, 'svcroot /sysroot tmpfs')
      t.notOk(well.machine.has('result/etc/svc/running'), 'it is not what the node runs')
      t.ok(well.machine.has('result/etc/os-release'))

      for (const [cmdline, text, why] of [
        [
          booted,
          normal,
          /started: this machine was booted for a rescue, which was ended since then: start it anew$/
        ],
        [
          'root=svc initrd=initrd.img',
          rescue,
          /started: this machine was not booted for the rescue that was asked for/
        ]
      ] as const) {
        const refused = await run(cmdline, text)
        exits(t, [refused.run], [1])
        t.same(refused.touched, [])
        t.match(refused.last, why)
      }
      const usual = await run('root=svc xsvc.rescue=1 svc.rescue=10', normal)
      t.same(usual.touched.slice(0, 2), ['pre', 'part'], 'else it is installed')
    }
  )
