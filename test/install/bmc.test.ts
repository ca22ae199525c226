import t from 'tap'
import { installBmc } from './data.js'
import { completed, failed, install, type Plan } from './install.js'
import { shells } from './machine.js'

/** Records its arguments, one call a line, words in brackets, and lists three users. */
const ipmitool = `
shift 3
for word; do printf '[%s]' "$word"; done >> /ipmi
echo >> /ipmi
case $* in 'user list '*) printf 'ID  Name  Callin\\n1   (null) true\\n2   ADMIN  true\\n3   old    true\\n' ;; esac
`
const plan: Omit<Plan, 'shell' | 'data'> = {
  programs: { ipmitool },
  prepare: machine => machine.write('dev/ipmi0', '')
}

for (const shell of shells) {
  t.test(`the BMC gets its user and its network, ${shell}`, async t => {
    const bmc = installBmc({ unmanaged_bmc_users: 'delete' })
    const done = await install(t, { shell, ...plan, data: { setupbmc: true, bmc } })
    completed(t, done)
    t.strictSame(done.machine.text('ipmi').trim().split('\n'), [
      '[user][set][name][3][operator]',
      `[user][set][password][3][it's $HOME "x"][16]`,
      '[user][priv][3][4][1]',
      '[channel][setaccess][1][3][callin=on][ipmi=on][link=on][privilege=4]',
      '[user][enable][3]',
      '[user][list][1]',
      '[user][disable][2]',
      '[user][set][name][2][]',
      '[lan][set][2][ipsrc][static]',
      '[lan][set][2][ipaddr][10.148.0.1]',
      '[lan][set][2][netmask][255.255.0.0]',
      '[lan][set][2][defgw][ipaddr][10.148.255.254]'
    ])
  })

  t.test(`a BMC without an address keeps its network, other users stay, ${shell}`, async t => {
    const bmc = installBmc({ ipaddress: '', netmask: '', gateway: '', password: 'seventeen letters' })
    const done = await install(t, { shell, ...plan, data: { setupbmc: true, bmc } })
    completed(t, done)
    t.notMatch(done.machine.text('ipmi'), /lan|list|disable/)
    t.match(done.machine.text('ipmi'), '[seventeen letters][20]')
  })

  t.test(`a command that the BMC refuses is the reason, without its values, ${shell}`, async t => {
    const refuse = 'case $* in *password*) exit 1 ;; esac'
    const data = { setupbmc: true, bmc: installBmc() }
    const done = await install(t, { shell, ...plan, programs: { ipmitool: refuse }, data })
    failed(t, done, 'bmcsetup', /ipmitool cannot set the password$/)
    t.notMatch(done.run.output, '$HOME')
  })
}

t.test('a password that no BMC can store', async t => {
  const data = { setupbmc: true, bmc: installBmc({ password: 'more than twenty letters' }) }
  failed(t, await install(t, { shell: 'ash', ...plan, data }), 'bmcsetup', /longer than 20/)
})
