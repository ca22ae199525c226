import t, { type Test } from 'tap'
import type { InstallBmc } from '../../lib/boot/install-data.js'
import { bmcBytes, installBmc } from '../support/install-data.js'
import type { Shell } from '../support/node-root.js'
import { completed, failed, install, type Plan } from './install.js'
import { allShells, everyCase } from './installing-node.js'

/**
 * Takes its command from a file that nobody else can read, as the real one does, and records it; knows four
 * slots, of which the third is `name`'s and the fourth is nobody's. `refuse`: what it fails at.
 */
const ipmitool = (name = 'old', refuse = 'nothing') => `
printf '%s\\n' "$*" >> /arguments
[ "$1 $2 $3 $4" = '-I open -c exec' ] || exit 2
ls -l "$5" | cut -c 1-10 >> /modes
cat "$5" >> /ipmi
case $(cat "$5") in
  *'${refuse}'*) exit 1 ;;
  'user list '*) printf '1,,true\\n2,ADMIN,true\\n3,%s,true\\n4,,true\\n5,guest user,true\\n' '${name}' ;;
esac
`
const run = (t: Test, shell: Shell, changes: Partial<InstallBmc>, program = ipmitool()) => {
  const plan: Omit<Plan, 'shell' | 'data'> = {
    programs: { ipmitool: program },
    prepare: machine => machine.write('dev/ipmi0', '')
  }
  return install(t, { shell, ...plan, data: { setupbmc: true, bmc: installBmc(changes) } })
}
const password = 'it\'s $HOME "x"'

for (const shell of allShells) {
  // rules 4.19
  t.test(`the BMC gets its user and its network, ${shell}`, async t => {
    const done = await run(t, shell, {
      unmanaged_bmc_users: 'delete',
      vlan: '42',
      ntp_server: '10.148.255.1'
    })
    completed(t, done)
    t.strictSame(done.machine.text('ipmi').trim().split('\n'), [
      'user list 1',
      `raw 6 69 3 ${bmcBytes('operator', 16)}`,
      `raw 6 71 3 2 ${bmcBytes(password, 16)}`,
      'user priv 3 4 1',
      'channel setaccess 1 3 callin=on ipmi=on link=on privilege=4',
      'user enable 3',
      'user list 1',
      'user disable 2',
      `raw 6 69 2 ${bmcBytes('', 16)}`,
      'user disable 4',
      'user disable 5',
      `raw 6 69 5 ${bmcBytes('', 16)}`,
      'lan set 2 vlan id 42',
      'lan set 2 ipsrc static',
      'lan set 2 ipaddr 10.148.0.1',
      'lan set 2 netmask 255.255.0.0',
      'lan set 2 defgw ipaddr 10.148.255.254'
    ])
    t.match(done.run.output, 'no command for time servers: the BMC is not told of 10.148.255.1')
  })

  if (!everyCase(shell)) continue
  // rules 4.19
  t.test(`no value is in the process list, or left in a file, ${shell}`, async t => {
    const { machine } = await run(t, shell, { unmanaged_bmc_users: 'disable' })
    t.strictSame(
      [...new Set(machine.text('arguments').trim().split('\n'))],
      ['-I open -c exec /svctmp/ipmitool']
    )
    t.strictSame([...new Set(machine.text('modes').trim().split('\n'))], ['-rw-------'])
    t.notOk(machine.has('svctmp/ipmitool'))
    t.match(machine.text('ipmi'), /^user disable 5$/m)
    t.notMatch(machine.text('ipmi'), /^raw 6 69 5/m, 'disabled, not deleted')
  })

  t.test(`a BMC without an address keeps its network, other users stay, ${shell}`, async t => {
    const nowhere = { ipaddress: '', netmask: '', gateway: '' }
    const done = await run(
      t,
      shell,
      { ...nowhere, password: 'seventeen letters', vlan: 'off' },
      ipmitool('operator')
    )
    completed(t, done)
    const said = done.machine.text('ipmi')
    t.strictSame(
      said.split('\n').filter(line => /lan set|disable|raw/.test(line)),
      [`raw 6 71 131 2 ${bmcBytes('seventeen letters', 20)}`, 'lan set 2 vlan id off'],
      'nor is the name set, which the slot has'
    )
  })

  t.test(`a command that the BMC refuses is the reason, without its values, ${shell}`, async t => {
    const done = await run(t, shell, {}, ipmitool('old', 'raw 6 71'))
    failed(t, done, 'bmcsetup', /ipmitool cannot set the password$/)
    t.notMatch(done.run.output, '$HOME')
    t.notMatch(done.run.output, bmcBytes(password, 16))
  })
}

t.test('who cannot list the users deletes none, and says so', async t => {
  const done = await run(t, 'dash', { unmanaged_bmc_users: 'delete' }, ipmitool('old', 'user list'))
  failed(t, done, 'bmcsetup', /cannot list the users/)
  t.notMatch(done.machine.text('ipmi'), /disable/)
})

t.test('a name that another slot has: that slot is freed first, where other users are deleted', async t => {
  // Refuses a name that is taken, as some do.
  const taken = `${ipmitool()}
    case $(cat "$5") in
      *'raw 6 69 2 ${bmcBytes('', 16)}') touch /freed ;;
      *'raw 6 69 3 ${bmcBytes('ADMIN', 16)}') [ -e /freed ] || exit 1 ;;
    esac`
  const done = await run(t, 'dash', { username: 'ADMIN', unmanaged_bmc_users: 'delete' }, taken)
  completed(t, done)
  const kept = await run(t, 'dash', { username: 'ADMIN', unmanaged_bmc_users: 'disable' }, taken)
  failed(t, kept, 'bmcsetup', /ipmitool cannot set the user name, which user 2 has$/)
  t.notMatch(kept.machine.text('ipmi'), /raw 6 69 2/)
})

t.test('a slot that nobody has may be refused', async t => {
  completed(t, await run(t, 'dash', { unmanaged_bmc_users: 'delete' }, ipmitool('old', 'user disable 4')))
})

t.test('text that ipmitool would take for a command of its own', async t => {
  const done = await run(t, 'ash', { ipaddress: '10.148.0.1\nmc reset cold #', password: '# "\nmc reset' })
  completed(t, done)
  const said = done.machine.text('ipmi')
  t.notMatch(said, /mc reset/)
  t.match(said, `raw 6 71 3 2 ${bmcBytes('# "\nmc reset', 16)}\n`)
})

const wrong: Record<string, [Partial<InstallBmc>, RegExp]> = {
  'a password that no BMC can store': [{ password: 'more than twenty letters' }, /longer than 20/],
  'a name that no BMC can store': [{ username: 'more than sixteen' }, /longer than 16/],
  'no password': [{ password: '' }, /no user name, or no password/],
  'no user name': [{ username: '' }, /no user name, or no password/],
  'a VLAN that is none': [{ vlan: '4095' }, /neither off nor 1 to 4094/],
  'a VLAN with a command behind it': [{ vlan: '1;reboot' }, /neither off nor 1 to 4094/]
}
for (const [what, [changes, reason]] of Object.entries(wrong))
  t.test(what, async t => {
    failed(t, await run(t, 'ash', changes), 'bmcsetup', reason)
  })
