import { readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import t from 'tap'
import { tail } from '../support/virtual-machine.js'
import { reported } from './debian-image.js'
import { type DiskNode, installedDisks } from './installed-disks.js'

// The scripts of docs/howto.md for two disks as one, with LVM on them: a real Debian is installed, then once
// more over what it has left, which udev assembles; then it boots from each of its disks alone. With each
// firmware.

const howto = readFileSync(new URL('../../docs/howto.md', import.meta.url), 'utf8')
const block = (begin: string) =>
  howto
    .match(/^```sh\n[\s\S]*?^```$/gm)
    ?.map(text => text.slice('```sh\n'.length, -'```'.length))
    .find(text => text.startsWith(begin)) ?? 'exit 1\n'
const mirror = block('set -e\ndisks=')
const partscript = mirror.replace(/^# For LVM .*\n/m, block('pvcreate'))

const cases: readonly DiskNode[] = [
  { name: 'node001', mac: '52:54:00:14:06:01', ipaddress: '10.141.0.11', firmware: 'bios' },
  { name: 'node002', mac: '52:54:00:14:06:02', ipaddress: '10.141.0.12', firmware: 'uefi' }
]

/** Tells more of the system: its arrays. */
const more = 'echo "REPORT array $(grep -o "\\[[U_]*\\]" /proc/mdstat)"\n'

t.setTimeout(3 * 3_600_000)

t.test('two disks as one', async t => {
  const site = await installedDisks(t, cases, more)
  for (const node of cases)
    await t.test(`${node.name}, ${node.firmware}`, async t => {
      const [one, two] = [await site.disk('one', 4), await site.disk('two', 4)]
      const boot = async (disk: string, ...moreDisks: string[]) => {
        const { console } = await site.boot(t, node, { disk, moreDisks })
        const about = { console: tail(console) }
        t.match(reported(console, 'root'), /^ext4 +\/dev\/mapper\/system-root/, 'its root', about)
        return console
      }
      await site.create(node, { partscript: Buffer.from(partscript).toString('base64') })
      for (const what of ['empty disks', 'the same disks again']) {
        t.match(reported(await boot(one, two), 'array'), '[UU]', `installed onto ${what}`)
        t.equal((await site.controller.monitor(node.name)).state, 'installer.completed')
      }
      await site.leaveNetwork(t, node.name)
      for (const disk of [one, two]) {
        const console = await boot(disk)
        t.notMatch(console, /svc: step/, 'nothing was installed')
        t.match(reported(console, 'array'), /_/, 'booted from one disk alone')
      }
      for (const file of [one, two]) await rm(file)
    })
})
