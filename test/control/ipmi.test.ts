import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Bmc } from '../support/bmc.js'
import { addNode, ask, bmcCluster, follow } from '../support/bmc-cluster.js'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { checkout, locate } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { svcctlFor } from '../support/svcctl.js'

const port = await freePort()
const [one, two, three] = await Promise.all(
  ['127.7.0.1', '127.7.0.2', '127.7.0.3'].map(at => Bmc.start(t, at, { port }))
)
const bmcs = [one, two, three] as [Bmc, Bmc, Bmc]

const [bmc1, bmc2] = bmcs

// Nodes n1 to n3 have a BMC that answers; that of n4 is dead.
const c = await Controller.start(
  t,
  `control.ipmi_port=${port}`,
  'control.time_limit=2s',
  'control.parallel=2',
  'control.delay=1s'
)
await bmcCluster(c)
await c.post('/config/bmcsetup/wrong', { username: 'admin', password: 'guess' })
for (const i of [1, 2, 3]) await addNode(c, `n${i}`, `127.7.0.${i}`)
await addNode(c, 'n4', '127.7.9.9')
await addNode(c, 'n5', '127.7.0.2', { interfaces: [] })

t.beforeEach(async () => {
  for (const bmc of bmcs) {
    bmc.isOn = false
    bmc.forget()
  }
  await c.post('/config/node/n3', { bmcsetupname: null })
})

/** A program in the place of ipmitool, which PATH has first as long as the test runs. */
function inPlace(t: Test, script: string): string {
  const directory = scratch(t)
  const file = join(directory, 'ipmitool')
  writeFileSync(file, `#!/bin/sh\n${script}\n`)
  chmodSync(file, 0o755)
  const { PATH } = process.env
  process.env.PATH = `${directory}:${PATH}`
  t.teardown(() => {
    process.env.PATH = PATH
  })
  return directory
}

// rules 13.1
t.test('one node at once', async t => {
  const power = async () => {
    const { status, body } = await c.get('/control/action/power/n1/_status')
    return [status, body]
  }
  const act = (part: string, action: string) => c.get(`/control/action/${part}/n1/_${action}`)
  const done = async (part: string, action: string) =>
    t.match(await act(part, action), { status: 204, text: '' }, action)
  t.same(await power(), [200, { control: { power: 'off' } }])
  await done('power', 'on')
  t.ok(bmc1.isOn)
  t.same(await power(), [200, { control: { power: 'on' } }])
  bmc1.forget()
  await done('power', 'reset')
  t.same(bmc1.told, ['reset 1'])
  await done('power', 'cycle')
  await done('power', 'off')
  t.notOk(bmc1.isOn)
  for (const action of ['reset', 'cycle'])
    t.match((await act('power', action)).body.message, /: is off: switch it on with "on" or "boot"$/)
  await done('power', 'soft')
  bmc1.forget()
  await done('power', 'boot')
  t.same(bmc1.told, ['power 1'])
  await done('power', 'boot')
  t.match(bmc1.told.slice(1), [/^(power 0|reset 1|cycle 1)/], 'what is on is switched off and on again')
  await done('power', 'off')
  t.same(await power(), [200, { control: { power: 'off' } }])
  bmc1.forget()
  await done('chassis', 'identify')
  await done('chassis', 'noidentify')
  t.same(bmc1.told, ['identify 0 1', 'identify 0 0'], 'until it is turned off')

  t.same((await act('sel', 'list')).body, { control: { sel: '' } })
  await bmc1.event()
  const { status, body } = await act('sel', 'list')
  t.equal(status, 200)
  t.match(body.control.sel, /^1 \|.*\| Temperature #0x30 \| Upper Critical going high \| Asserted$/)
  await done('sel', 'clear')
  t.same((await act('sel', 'list')).body, { control: { sel: '' } })
  t.notMatch(c.log.join('\n'), /secret/)
  t.match(c.log.join('\n'), /info node n1: power off, by user admin: done/)
})

// rules 13.1
t.test('what is missing or wrong is named, with the way out', async t => {
  await c.post('/config/node/n2/_clone', {
    newhostname: 'free',
    interfaces: [{ interface: 'BMC', ipaddress: null }]
  })
  await c.post('/config/node/alone', { interfaces: [{ interface: 'BMC', network: 'loop' }] })
  await c.post('/config/bmcsetup/empty', {})
  await c.post('/config/bmcsetup/silent', { username: 'admin' })
  await c.post('/config/bmcsetup/stranger', { username: 'eve', password: 'secret' })
  await c.post('/config/bmcsetup/strong', { username: 'admin', password: 'secret', cipher: 17 })
  const refused = async (node: string, status: number, message: string, setup?: string) => {
    if (setup !== undefined) await c.post(`/config/node/${node}`, { bmcsetupname: setup })
    const reply = await c.get(`/control/action/power/${node}/_on`)
    t.same(
      [reply.status, Object.keys(reply.body), reply.body.message],
      [status, ['message', 'code'], message]
    )
  }
  await refused('none', 404, 'node none does not exist')
  await refused('n5', 404, 'node n5 has no interface BMC: type svcctl group set compute BMC.network=NETWORK')
  await refused(
    'free',
    404,
    'node free: its interface BMC has no "ipaddress": type svcctl node set free BMC.ipaddress=ADDRESS'
  )
  await refused(
    'alone',
    404,
    'node alone has no BMC set-up: type svcctl node set alone bmcsetupname=NAME (svcctl bmcsetup list shows them)'
  )
  await refused(
    'n3',
    404,
    'BMC set-up empty has no "username", which the BMC of n3 asks for: type svcctl bmcsetup set empty username=NAME',
    'empty'
  )
  await refused(
    'n3',
    404,
    'BMC set-up silent has no "password", which the BMC of n3 asks for: type svcctl bmcsetup set silent password=-',
    'silent'
  )
  await refused('n3', 503, 'node n3: BMC 127.7.0.3: wrong password in BMC set-up wrong', 'wrong')
  await refused('n3', 503, 'node n3: BMC 127.7.0.3: no user eve (BMC set-up stranger)', 'stranger')
  await refused(
    'n3',
    503,
    'node n3: BMC 127.7.0.3: refuses cipher 17: set "cipher" of BMC set-up strong to 3',
    'strong'
  )
  await refused('n4', 503, 'node n4: BMC 127.7.9.9: no answer within 2 s')
  t.same(
    bmcs.map(bmc => bmc.told),
    [[], [], []],
    'no machine was told anything'
  )

  const { PATH } = process.env
  process.env.PATH = '/nowhere'
  await refused(
    'n1',
    503,
    'node n1: BMC 127.7.0.1: ipmitool is not installed: install the package ipmitool on the controller'
  )
  process.env.PATH = PATH
  t.notMatch(c.log.join('\n'), /secret|guess/)
})

// rules 13.2
t.test('many nodes by a request', async t => {
  await c.post('/config/node/n3', { bmcsetupname: 'wrong' })
  bmc2.isOn = true

  const asked = await ask(c, 'power', 'status', 'n4,n1,n2,n3,n5')
  t.match(
    [asked.status, asked.body],
    [
      200,
      {
        message: 'queued',
        request_id: /^[\da-f]{32}$/,
        state: 'queued',
        control: { power: { ok: {}, on: {}, off: {} }, failed: {} }
      }
    ]
  )
  const id = asked.body.request_id
  const { answers, ...outcome } = await follow(c, 'power', id)
  t.same(outcome, {
    ok: {},
    on: { n2: 'on' },
    off: { n1: 'off' },
    failed: {
      n3: '127.7.0.3: wrong password in BMC set-up wrong',
      n4: '127.7.9.9: no answer within 2 s',
      n5: 'node n5 has no interface BMC: type svcctl group set compute BMC.network=NETWORK'
    },
    state: 'failed'
  })
  t.ok(answers > 1, 'the others did not wait for the dead one')
  const record = (await c.get(`/monitor/request/${id}`)).body.monitor.request[id]
  t.match(record, {
    kind: 'power status',
    object: '5 nodes (n[1-5])',
    by: 'user admin',
    progress: 1,
    message: 'failed: 3 of 5 nodes failed: n3, n5, n4',
    results: { n1: { state: 'done', message: 'off' }, n3: { state: 'failed' } }
  })
  t.same(
    record.lines.slice(-2),
    ['n4: failed: 127.7.9.9: no answer within 2 s', record.message],
    'the dead one is last'
  )
  t.equal((await c.get(`/control/status/${id}`)).status, 404)
  t.equal((await c.get(`/config/status/${id}`)).status, 200, 'its lines are told apart from its results')
  t.same(bmc1.told, [])

  const on = await follow(c, 'power', (await ask(c, 'power', 'on', 'n[1-2]')).body.request_id)
  t.match(on, { ok: { n1: 'power on', n2: 'power on' }, on: {}, failed: {}, state: 'done' })
  t.same([bmc1.isOn, bmc2.isOn], [true, true])
  await bmc1.event()
  const list = await follow(c, 'sel', (await ask(c, 'sel', 'list', 'n1')).body.request_id)
  t.match(list.ok, { n1: /Upper Critical going high/ })
  t.match(await follow(c, 'sel', (await ask(c, 'sel', 'clear', 'n1')).body.request_id), {
    ok: { n1: 'sel clear' }
  })
})

// rules 13.2
t.test('what a request may name', async t => {
  await c.post('/config/group/empty', {})
  const refused = async (body: unknown, status: number, message: RegExp | string) => {
    const reply = await c.post('/control/action/power/_on', body)
    t.match([reply.status, reply.body.message], [status, message])
  }
  const of = (hostlist: unknown) => ({ control: { power: { on: { hostlist } } } })
  await refused(of('n1,none'), 404, /there is no node none/)
  await refused(of('@empty'), 400, 'power on: field "hostlist" names no node')
  await refused(of('n[1'), 400, /node set/)
  await refused(of(7), 400, 'power on: field "hostlist" must be a string, not 7')
  await refused({}, 400, 'power on: field "hostlist" is missing')
  await refused({ control: { power: { off: { hostlist: 'n1' } } } }, 400, /"off" where only "on" belongs/)
  await refused(of('n1,'.repeat(400_000)), 413, /./)
  t.equal((await ask(c, 'power', 'burn', 'n1')).status, 404)
  t.equal((await ask(c, 'power', 'list', 'n1')).status, 404)
  t.equal((await c.get('/control/action/power/n1/_on', { method: 'HEAD' })).status, 405)
  t.same(
    bmcs.flatMap(bmc => bmc.told),
    []
  )
  t.equal(
    (await c.post('/control/action/power/_status', { hostlist: 'n1' })).status,
    200,
    'without the envelope'
  )
})

// rules 13.2
t.test('requests that change a node do so in the order in which they came', async t => {
  // The first one takes longer.
  inPlace(t, `case "$*" in *power\\ on) sleep 0.5 ;; esac\nexec ${locate('ipmitool')} "$@"`)
  const on = (await ask(c, 'power', 'on', 'n1,n2')).body.request_id
  const off = (await ask(c, 'power', 'off', 'n2')).body.request_id
  await Promise.all([follow(c, 'power', on), follow(c, 'power', off)])
  t.same([bmc1.isOn, bmc2.isOn], [true, false])
  t.same(bmc2.told, ['power 1', 'power 0'])

  const again = (await ask(c, 'power', 'on', 'n2')).body.request_id
  const behind = (await ask(c, 'power', 'on', 'n2')).body.request_id
  t.equal((await c.get(`/config/status/${behind}/_cancel`)).status, 200, 'one that waits can be cancelled')
  await follow(c, 'power', again)
  t.match(await follow(c, 'power', behind), { state: 'failed', ok: {}, failed: {} })
})

// rules 13.3
t.test('a password is in no process list; what a program says is cut and cleaned', async t => {
  const directory = inPlace(
    t,
    `printf '%s\\n' "$*" "$IPMI_PASSWORD" > "$(dirname "$0")/seen"
case "$*" in
  *sel*) yes "$(printf '\\033[2Jred')" | head -c 3000000 ;;
  *status) printf '\\033]0;owned\\007\\342\\200\\256 is on\\n' ;;
  *) printf 'a\\033[31m\\tb%0900d\\n' 1 >&2; exit 1 ;;
esac`
  )
  const say = async (part: string, action: string) =>
    (await c.get(`/control/action/${part}/n1/_${action}`)).body.message
  const status = await say('power', 'status')
  t.equal(
    status,
    'node n1: BMC 127.7.0.1: ipmitool tells no state of the power: \\u001b]0;owned\\u0007 is on'
  )
  const [args = '', password] = readFileSync(join(directory, 'seen'), 'utf8').split('\n')
  t.equal(args, `-I lanplus -H 127.7.0.1 -p ${port} -C 3 -U admin -E -v power status`)
  t.equal(password, 'secret')
  t.match(
    await say('power', 'on'),
    /^node n1: BMC 127\.7\.0\.1: ipmitool failed with status 1: a\\u001b\[31m\\u0009b0{200,}…$/
  )
  t.equal(
    await say('sel', 'list'),
    'node n1: BMC 127.7.0.1: ipmitool wrote more than 1048576 bytes and was ended'
  )
  t.notOk(c.log.some(line => /[\u0000-\u001f\u202e]/.test(line.slice(0, -1))))
})

t.test('each refusal of ipmitool is told as what it is', async t => {
  await c.post('/config/bmcsetup/lower', {
    username: 'admin',
    password: 'secret',
    privilege: 'operator',
    port: 6230
  })
  await c.post('/config/node/n3', { bmcsetupname: 'lower' })
  const directory = inPlace(
    t,
    `printf '%s\\n' "$*" >"$(dirname "$0")/seen"; cat "$(dirname "$0")/says" >&2; exit 1`
  )
  for (const [says, told] of [
    ['> Error : insufficient resources for session', /: has no room for another session: end one in the BMC/],
    [
      'RAKP 2 message indicates an error : unauthorized role requested',
      /: user admin is no operator there: set "privilege" of BMC set-up lower to what the user is$/
    ],
    ['Set Session Privilege Level to OPERATOR failed: Unknown (0x81)', /: user admin is no operator there/],
    ['Activate Session error:\tRequested privilege level exceeds limit', /: user admin is no operator there/],
    [
      'Unable to set Chassis Power Control to Up/On : Insufficient privilege level',
      /: the privilege operator is too low for this: set "privilege" of BMC set-up lower to administrator$/
    ],
    ['Unable to get Chassis Power Status : Node busy', /: is busy: try again in a minute$/],
    [
      'Unable to set Chassis Power Control to Up/On : Command not supported in present state',
      /: cannot do it in the state that the machine is in$/
    ]
  ] as const) {
    writeFileSync(join(directory, 'says'), `${says}\nError: Unable to establish IPMI v2 / RMCP+ session\n`)
    t.match((await c.get('/control/action/power/n3/_on')).body.message, told, says)
  }
  t.match(readFileSync(join(directory, 'seen'), 'utf8'), /-p 6230 .*-L OPERATOR /)
})

t.test('the next boot, once: by UEFI where the machine boots so', async t => {
  const told = (firmware: string) => {
    const directory = inPlace(
      t,
      `printf '%s\\n' "$*" >>"$(dirname "$0")/seen"\ncase "$*" in *bootparam*) echo "   - ${firmware}" ;; esac`
    )
    return () =>
      readFileSync(join(directory, 'seen'), 'utf8')
        .split('\n')
        .flatMap(line => /bootdev .*/.exec(line) ?? [])
  }
  for (const [firmware, option] of [
    ['BIOS PC Compatible (legacy) boot', ''],
    ['BIOS EFI boot', ' options=efiboot']
  ] as const) {
    const seen = told(firmware)
    for (const action of ['netboot', 'diskboot'])
      t.equal((await c.get(`/control/action/chassis/n1/_${action}`)).status, 204)
    t.same(seen(), [`bootdev pxe${option}`, `bootdev disk${option}`])
  }
})

// rules 13.2
t.test('machines are switched on in batches, however many requests there are', async t => {
  const directory = inPlace(t, `date +%s%N >> "$(dirname "$0")/seen"\nexec ${locate('ipmitool')} "$@"`)
  const ids = await Promise.all(['n1', 'n2', 'n3'].map(node => ask(c, 'power', 'on', node)))
  for (const { body } of ids) await follow(c, 'power', body.request_id)
  const begun = readFileSync(join(directory, 'seen'), 'utf8').trim().split('\n').map(Number)
  t.equal(begun.length, 3)
  t.ok((begun[2] as number) - (begun[0] as number) > 0.8e9, 'the third is in the second batch')
})

// rules 13.1, 13.2
t.test('the commands of docs/power.md, as they are typed', async t => {
  const text = readFileSync(join(checkout, 'docs/power.md'), 'utf8')
  const commands = [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].flatMap(([, block = '']) =>
    block.trim().split('\n')
  )
  const env = {
    ...svcctlFor(scratch(t), c),
    auth: `x-access-tokens: ${c.token}`,
    url: `http://127.0.0.1:${c.daemon.port}`
  }
  const type = async (command = '', input = '') => {
    const shown = command.startsWith('curl ') ? `${command} -w '%{http_code}'` : command
    const { code, stdout, stderr } = await start('sh', ['-c', shown], { input, env }).ended
    t.equal(code, 0, `${command} ${stderr}`)
    return stdout
  }
  const [network, setup, group, state, allOn, status, on, many, results, ...more] = commands
  t.same(more, [])
  // The page makes its own.
  await c.post('/config/group/compute', { bmcsetupname: null })
  await c.get('/config/bmcsetup/boards/_delete')
  await type(network)
  await type(setup, 'secret\n')
  await type(group)
  for (const i of [1, 2]) await c.post(`/config/node/n${i}`, { newhostname: `node00${i}` })
  t.match(await type(state), /node001.*off/)
  t.match(await type(allOn), /node\[001-002\]: power on/)
  t.ok(bmc1.isOn && bmc2.isOn)
  for (const bmc of bmcs) bmc.isOn = false
  t.equal(await type(status), '{"control":{"power":"off"}}\n200')
  t.equal(await type(on), '204')
  t.ok(bmc1.isOn)
  const id = /"request_id":"(\w+)"/.exec(await type(many))?.[1] ?? ''
  t.match(await type(results?.replace('REQUEST_ID', id)), /"control":\{"power":.*"failed":\{.*\n200$/)
  await follow(c, 'power', id)
  t.ok(bmc2.isOn)
})
