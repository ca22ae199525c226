import { generateKeyPairSync, X509Certificate } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { clientHere, loggedIn } from '../support/svcctl.js'
import { bootEvents, derOf, grubOf, isSigned, Machine } from './machine.js'

// Rules 15.1 to 15.6 with real TPMs (swtpm) and tpm2-tools, against a real svcd.

const authority = scratch(t)
/** Two for all tests, each of which boots them anew: what svcd knows of them is the test's own. */
const machine = await Machine.start(t, authority)
const stranger = await Machine.start(t, authority)

/** A controller with a node that has to prove itself, and what GRUB measures when it boots. */
async function required(t: Test, trust = 'require', ...overrides: string[]): Promise<Controller> {
  const controller = await Controller.start(t, ...overrides)
  await controller.cluster()
  const { status } = await controller.post('/config/node/node001', {
    group: 'compute',
    macaddr: '52:54:00:00:00:01',
    trust
  })
  t.equal(status, 201)
  await controller.post('/config/secrets/node/node001/key', { path: '/etc/key', content: 'U0VDUkVU' })
  controller.daemon.trust.measured = () => [grubOf()]
  return controller
}

const shown = async (controller: Controller, node = 'node001') => {
  const { body } = await controller.get(`/config/node/${node}/_trust`)
  return body.config.node[node]
}

/** Runs svcctl, which a person answers with `types`. */
const svcctlOf = (t: Test, controller: Controller) => {
  const env = loggedIn(scratch(t), controller)
  return (args: readonly string[], types?: string) =>
    clientHere(args, env, types === undefined ? {} : { answers: () => types })
}

/** The kernel arguments of svcd's own for the node. */
const argumentsOf = ({ daemon: { boot, model } }: Controller) =>
  boot.trustArguments(model.effective(model.get('node', 'node001')))

/** Accepts what is shown. */
const accept = async (controller: Controller) => {
  const { ek, ak, seen } = await shown(controller)
  return controller.post('/config/node/node001/_trust', { ek, ak, seen })
}

const enrolled = async (controller: Controller, machine: Machine) => {
  await machine.boot(bootEvents(grubOf()))
  await machine.enrol(controller)
  await accept(controller)
}

// rules 15.1, 15.2, 15.6
t.test(
  'a machine is enrolled under the eyes of an admin, and gets a script that only its TPM reads',
  async t => {
    const controller = await required(t)
    await machine.boot(bootEvents(grubOf()))
    const direct = await controller.get('/boot/install/node001', { token: null, source: machine.address })
    t.match(direct, { status: 403, body: { code: 'trust-required' } })
    for (const path of ['/kickstart/install/node001', '/boot/cloud-init/node001/user-data'])
      t.match(await controller.get(path, { token: null, source: machine.address }), { status: 403 }, path)
    const masked = await controller.get('/kickstart/install/node001')
    t.notMatch(masked.text, 'U0VDUkVU', 'anybody else gets a kickstart without secrets as before')

    const nonce = await machine.nonce(controller)
    t.match(nonce, /^[\da-f]{64}$/)
    const first = await machine.post(controller, 'quote', await machine.body(nonce))
    t.match(first.body, { verdict: 'unknown', reason: /no TPM is enrolled for node node001 yet/ })
    t.equal(first.body.sealed, undefined)
    t.match(await shown(controller), { verdict: 'unknown', pending: false, bound: false, enrolled: null })
    t.match(await accept(controller), { status: 400 }, 'a key that is not proved is not accepted')

    t.match(await machine.prove(controller, nonce, first), { status: 200 })
    t.match(await shown(controller), { verdict: 'unknown', pending: true, bound: true, secureboot: true })
    const set = await controller.get('/config/node?nodes=@trust:pending&fields=name')
    t.strictSame(Object.keys(set.body.config.node), ['node001'])
    t.match(
      await controller.post('/config/node/node001/_trust', {
        ek: '0'.repeat(64),
        ak: '00',
        seen: '0'.repeat(64)
      }),
      {
        status: 400,
        body: { message: /another machine has asked meanwhile/ }
      }
    )
    t.match(await accept(controller), { status: 200 })
    const { body } = await controller.get('/config/node/node001')
    const { tpm_sha256, tpm_pubkey, tpm_uuid } = body.config.node.node001
    t.match(
      { tpm_sha256, tpm_pubkey, tpm_uuid },
      {
        ...{
          tpm_sha256: /^[\da-f]{64}$/,
          tpm_pubkey: /^-----BEGIN PUBLIC KEY-----/,
          tpm_uuid: /^000b[\da-f]{64}$/
        }
      }
    )

    const again = await machine.nonce(controller)
    const good = await machine.post(controller, 'quote', await machine.body(again))
    t.match(good.body, { verdict: 'good' })
    const fingerprint = /svc\.key=([\da-f]{64})$/.exec(argumentsOf(controller))?.[1] ?? ''
    t.ok(
      isSigned(good, 'node001', again, machine.exchange.publicKey, fingerprint),
      'signed by the key that the command line names'
    )
    t.notMatch(Buffer.from(good.body.sealed, 'base64').toString('latin1'), 'SVC_TOKEN')
    const script = await machine.script(good)
    t.match(script, 'SVC_TOKEN=')
    t.match(script, 'U0VDUkVU')
    t.match(await controller.get('/metrics'), { text: /svcd_node_trust\{verdict="good"\} 1/ })
    t.match((await controller.get('/monitor/overview')).body.monitor.overview.nodes[0].at(-1), 'good')

    await machine.boot(bootEvents(grubOf()))
    const second = await machine.quote(controller)
    t.match(second.body, { verdict: 'good' }, 'the next boot needs nobody')
    t.ok(await machine.script(second))
  }
)

/** A program or file with other bytes. */
const changed = <F extends object>(file: F | undefined): F => ({ ...(file as F), sha256: 'ab'.repeat(32) })

// rules 15.3, 15.4
t.test('nothing is given for a boot that differs, and the reason names PCR and file', async t => {
  const controller = await required(t)
  await enrolled(controller, machine)
  const grub = grubOf()
  const wrong: readonly (readonly [ReturnType<typeof bootEvents>, RegExp])[] = [
    [
      bootEvents(grubOf('', 'another one')),
      /^PCR 9 differs: the initramfs is not compute-initrd as svcd has it$/
    ],
    [
      bootEvents(grubOf(' rd.break')),
      /^PCR 8 differs: the command "linux" is "… svc\.trust=require rd\.break", and svcd gave "… svc\.trust=require"$/
    ],
    [
      bootEvents({ ...grub, commands: [...grub.commands, { what: 'grub_cmd', text: 'insmod evil' }] }),
      /^PCR 8 differs: GRUB ran more than svcd gave it: "grub_cmd: insmod evil"$/
    ],
    [
      bootEvents(grubOf(' \u202ered.\u009b2J')),
      /^PCR 8 differs: the command "linux" is "… svc\.trust=require {2}red\. 2J", and svcd gave "… svc\.trust=require"$/
    ],
    [
      bootEvents({ ...grub, files: grub.files.slice(0, 2) }),
      /^PCR 9 differs: the machine did not read the initramfs, compute-initrd$/
    ],
    [bootEvents(grub, false), /^Secure Boot is off$/],
    [
      bootEvents({ ...grub, programs: [changed(grub.programs[0]), ...grub.programs.slice(1)] }),
      /^PCR 4 differs: shim is not shimx64.efi as svcd has it$/
    ],
    [
      bootEvents({ ...grub, programs: [...grub.programs.slice(0, 2), changed(grub.programs[2])] }),
      /^PCR 4 differs: the kernel is not compute-kernel as svcd has it$/
    ],
    [
      bootEvents({ ...grub, programs: grub.programs.slice(0, 2) }),
      /^PCR 4 differs: the machine did not start the kernel, compute-kernel$/
    ],
    [
      bootEvents({ ...grub, programs: [...grub.programs, changed(grub.programs[0])] }),
      /^PCR 4 differs: the machine started a program more: type 0x80000003/
    ],
    [bootEvents(grub, true, '1.1'), /^PCR 0 differs from what was accepted for this firmware, at its event 1/]
  ]
  for (const [events, reason] of wrong) {
    await machine.boot(events)
    const answer = await machine.quote(controller)
    t.match(answer.body, { verdict: 'bad', reason })
    t.equal(answer.body.sealed, undefined)
    t.notMatch(answer.text, 'U0VDUkVU')
    const why = await controller.get('/monitor/node/node001/_why')
    t.match(why.body.monitor.why.node001, {
      rule: 'not-trusted',
      verdict: /^node001 is not trusted since its quote at/
    })
  }
  const set = await controller.get('/config/node?nodes=@trust:bad&fields=name')
  t.strictSame(Object.keys(set.body.config.node), ['node001'])
  const audit = (await controller.get('/monitor/audit?by=machines')).text
  t.match(audit, /Secure Boot is off/)
  // A new firmware, of which an admin was told.
  t.match(await shown(controller), { verdict: 'bad', pending: true })
  t.match(await accept(controller), { status: 200 })
  t.match((await machine.quote(controller)).body, { verdict: 'good' })
  await machine.boot(bootEvents(grub))
  t.match((await machine.quote(controller)).body, { verdict: 'good' }, 'and the old one is good as well')
})

t.test('a node may boot as each architecture does; a difference is told from its own', async t => {
  const controller = await required(t)
  const arm = (options = '') => {
    const { commands, ...rest } = grubOf(options)
    return {
      ...rest,
      commands: [{ what: 'grub_cmd' as const, text: '[ -e arm64-efi ]' }, ...commands.slice(1)]
    }
  }
  controller.daemon.trust.measured = () => [grubOf(), arm()]
  await machine.boot(bootEvents(arm()))
  await machine.enrol(controller)
  await accept(controller)
  t.match((await machine.quote(controller)).body, { verdict: 'good' })
  await machine.boot(bootEvents(arm(' rd.break')))
  t.match((await machine.quote(controller)).body, {
    verdict: 'bad',
    reason: /^PCR 8 differs: the kernel's command line/
  })
})

t.test('a boot of before the last change is no alarm, and gets nothing', async t => {
  const controller = await required(t)
  await enrolled(controller, machine)
  t.match((await machine.quote(controller)).body, { verdict: 'good' })
  controller.daemon.trust.measured = () => [grubOf(' quiet')]
  const answer = await machine.quote(controller)
  t.match(answer.body, { verdict: 'unknown', reason: /^it booted as it did before; that was changed since/ })
  t.equal(answer.body.sealed, undefined)
  await machine.boot(bootEvents(grubOf(' quiet')))
  t.match((await machine.quote(controller)).body, { verdict: 'good' })
})

t.test('a replayed quote, a used nonce, the quote of another node, a log that does not match', async t => {
  const controller = await required(t)
  await enrolled(controller, machine)
  const nonce = await machine.nonce(controller)
  const body = await machine.body(nonce)
  t.match((await machine.post(controller, 'quote', body)).body, { verdict: 'good' })
  t.match(await machine.post(controller, 'quote', body), { status: 403, body: { code: 'nonce-refused' } })
  const fresh = await machine.nonce(controller)
  const replayed = await machine.post(controller, 'quote', { ...body, nonce: fresh })
  t.match(replayed.body, { verdict: 'bad', reason: /the quote has another nonce or exchange key/ })
  t.equal(replayed.body.sealed, undefined)
  t.equal(replayed.body.credential, '')
  controller.clockMs += 121_000
  const old = await machine.body(fresh)
  t.match(await machine.post(controller, 'quote', old), {
    status: 403,
    body: { message: /older than two minutes/ }
  })
  controller.clockMs = 0

  await controller.post('/config/node/node002', {
    group: 'compute',
    macaddr: '52:54:00:00:00:02',
    trust: 'require'
  })
  const theirs = await machine.nonce(controller, 'node001')
  const other = { token: null, source: '10.141.0.2' }
  const stolen = await controller.post('/trust/node002/quote', await machine.body(theirs), other)
  t.match(stolen, { status: 403, body: { message: /was not made for this node/ } })
  t.match(await machine.post(controller, 'quote', {}, 'node002'), {
    status: 401,
    body: { code: 'wrong-address' }
  })

  const lie = { log: Buffer.concat([machine.log.subarray(0, -1), Buffer.from('x')]).toString('base64') }
  t.match((await machine.quote(controller, lie)).body, { verdict: 'good' }, 'text is not measured')
  const cut = bootEvents(grubOf()).slice(0, -1)
  await machine.boot(cut)
  const { log } = machine
  await machine.boot(bootEvents(grubOf()))
  const unlike = await machine.quote(controller, { log: log.toString('base64') })
  t.match(unlike.body, { verdict: 'bad', reason: 'the event log does not match the PCRs of the quote' })
  const junk = await machine.quote(controller, { log: 'AAAA' })
  t.match(junk.body, { verdict: 'bad', reason: /^event log: / })
  t.match(await machine.quote(controller, { ak: 'AAAA' }), { status: 400, body: { message: /"ak"/ } })
  t.match((await machine.quote(controller, { ak: machine.ek.toString('base64') })).body, { verdict: 'bad' })
})

// rules 15.6
t.test('an answer is for the boot that asked: its TPM alone does not open it later', async t => {
  const controller = await required(t)
  await enrolled(controller, machine)
  const recorded = await machine.quote(controller)
  t.match(recorded.body, { verdict: 'good' })
  t.match(await machine.script(recorded), 'U0VDUkVU')
  const { exchange } = machine
  await machine.boot(bootEvents(grubOf(' rd.break')))
  const { credential } = recorded.body
  t.ok(await machine.open(credential), 'the TPM opens K as before')
  const opened = await machine.script(recorded).catch(() => '')
  t.notMatch(opened, 'U0VDUkVU', 'a later boot of the same TPM does not read the script')
  machine.exchange = exchange
  t.match(await machine.script(recorded), 'U0VDUkVU', 'it is the key of the boot that was missing')

  await machine.boot(bootEvents(grubOf()))
  const der = (curve: string) => derOf(generateKeyPairSync('ec', { namedCurve: curve }).publicKey)
  const swapped = await machine.quote(controller, { exchange: der('P-256').toString('base64') })
  t.match(swapped.body, { verdict: 'bad', reason: /the quote has another nonce or exchange key/ })
  t.strictSame([swapped.body.sealed, swapped.body.credential], [undefined, ''])
  const right = der('P-256')
  const infinity = Buffer.concat([
    Buffer.from([0x30, 25]),
    right.subarray(2, 23),
    Buffer.from('03020000', 'hex')
  ])
  const off = Buffer.from(right)
  off[90] = (off[90] ?? 0) ^ 1
  const long = Buffer.concat([right, Buffer.alloc(200)])
  for (const wrong of [der('P-384'), Buffer.from('AAAA'), infinity, off, long])
    t.match(await machine.quote(controller, { exchange: wrong.toString('base64') }), {
      status: 400,
      body: { message: /"exchange"/ }
    })
  t.match(await machine.quote(controller, { exchange: undefined }), { status: 400 })
  t.match((await machine.quote(controller)).body, { verdict: 'good' })
})

// rules 15.2, 15.7
t.test(
  'another machine with the address of the node gets nothing, and may take its place by an admin',
  async t => {
    const controller = await required(t)
    await enrolled(controller, machine)
    await stranger.boot(bootEvents(grubOf()))
    const first = await stranger.quote(controller)
    t.match(first.body, { verdict: 'unknown', reason: /another TPM than that of node node001/ })
    t.equal(first.body.sealed, undefined)
    // With the public part of the right key it cannot open the answer.
    const nonce = await stranger.nonce(controller)
    const claimed = await stranger.post(
      controller,
      'quote',
      await stranger.body(nonce, { ek: machine.ek.toString('base64') })
    )
    t.equal(claimed.body.sealed, undefined)
    await t.rejects(stranger.prove(controller, nonce, claimed))
    // Its own secret is none for the other's key.
    const own = await stranger.nonce(controller)
    const answer = await stranger.post(controller, 'quote', await stranger.body(own))
    await stranger.post(
      controller,
      'quote',
      await stranger.body(await stranger.nonce(controller), { ek: machine.ek.toString('base64') })
    )
    t.match(await stranger.prove(controller, own, answer), { status: 403 })
    t.match(await shown(controller), { bound: false })

    await stranger.enrol(controller)
    const proved = await stranger.quote(controller)
    t.match(proved.body, { verdict: 'bad', reason: /another TPM than that of node node001/ })
    t.equal(proved.body.sealed, undefined)
    t.match(await shown(controller), { verdict: 'bad', pending: true })
    t.match((await machine.quote(controller)).body, { verdict: 'good' }, 'the right machine as before')
    await stranger.enrol(controller)
    await accept(controller)
    t.match((await stranger.quote(controller)).body, { verdict: 'good' }, 'a new mainboard')
    t.match((await machine.quote(controller)).body, { verdict: 'unknown' }, 'the old one is another TPM now')

    const { status } = await controller.post('/config/node/node001/_distrust', { firmware: true })
    t.equal(status, 200)
    t.match(await shown(controller), { verdict: null, enrolled: null })
    t.match((await stranger.quote(controller)).body, {
      verdict: 'unknown',
      reason: /nothing is accepted yet for ACME R1, firmware 1\.0/
    })
  }
)

t.test('a delivery list and a maker enrol a TPM by themselves; its firmware is accepted once', async t => {
  const controller = await required(t)
  await enrolled(controller, machine)
  const { enrolled: ek } = await shown(controller)
  await controller.post('/config/node/node001/_distrust', {})
  t.match(await shown(controller), { enrolled: null })
  const { ak } = await shown(controller)
  await controller.post('/config/node/node001', { tpm_sha256: ek.toUpperCase(), tpm_uuid: ak })
  t.match((await machine.quote(controller)).body, {
    verdict: 'unknown',
    reason: /not proved yet that its key/
  })
  t.match(await machine.enrol(controller), { status: 200 })
  t.match((await machine.quote(controller)).body, { verdict: 'good' })
})

t.test('an authority of TPMs', async t => {
  const file = join(authority, 'all.pem')
  const read = (name: string) => readFileSync(join(authority, name), 'utf8')
  writeFileSync(file, `${read('issuer.pem')}\n${read('swtpm-localca-rootca-cert.pem')}`)
  const controller = await required(t, 'require', `trust.ek_ca=${file}`)
  await machine.boot(bootEvents(grubOf()))
  await machine.tpm.tool('nvread', '-Q', '0x01c00002', '-o', 'ek.crt')
  const certificate = machine.tpm.read('ek.crt')
  t.ok(new X509Certificate(certificate))
  const forged = Buffer.from(certificate)
  forged[forged.length - 9] = (forged[forged.length - 9] ?? 0) ^ 1
  const bad = await machine.quote(controller, { ek_certificate: forged.toString('base64') })
  t.match(bad.body, { verdict: 'unknown', reason: /EK certificate: signature/ })
  t.equal(bad.body.sealed, undefined)
  await machine.enrol(controller, { ek_certificate: forged.toString('base64') })
  t.match(await shown(controller), { enrolled: null, pending: true }, 'a forged one enrols nobody')
  await machine.enrol(controller, { ek_certificate: certificate.toString('base64') })
  const { enrolled: ek } = await shown(controller)
  t.match(ek, /^[\da-f]{64}$/)
  t.match((await machine.quote(controller)).body, {
    verdict: 'unknown',
    reason: /nothing is accepted yet for ACME R1/
  })
  t.match(await accept(controller), { status: 200 })
  t.match((await machine.quote(controller)).body, { verdict: 'good' })

  // rules 15.7
  const enrolsAgain = async () => {
    await machine.enrol(controller, { ek_certificate: certificate.toString('base64') })
    return shown(controller)
  }
  await controller.post('/config/node/node001/_distrust', {})
  t.match(await enrolsAgain(), { enrolled: null, pending: true }, 'only an admin enrols a forgotten machine')
  const none = await machine.quote(controller)
  t.match(none.body, { verdict: 'unknown', reason: /no TPM is enrolled for node node001/ })
  t.equal(none.body.sealed, undefined)
  t.match(await accept(controller), { status: 200 })
  t.match(await shown(controller), { enrolled: ek })
  await controller.post('/config/node/node001', {
    tpm_sha256: '',
    tpm_pubkey: '',
    tpm_uuid: '',
    trust: 'none'
  })
  t.match(await enrolsAgain(), { enrolled: null }, 'nor is one enrolled that nobody asks for a proof')
})

// rules 15.1, 15.5
t.test('report stops nothing, and a state of before goes on', async t => {
  const controller = await required(t, 'report')
  await machine.boot(bootEvents(grubOf(' rd.break'), false))
  const direct = await controller.get('/boot/install/node001', { token: null, source: machine.address })
  t.equal(direct.status, 200)
  const answer = await machine.quote(controller)
  t.match(answer.body, { verdict: 'unknown', reason: /PCR 8 differs/ })
  t.match(await machine.script(answer), 'SVC_TOKEN=')
  await machine.enrol(controller)
  await accept(controller)
  await controller.restart()
  controller.daemon.trust.measured = () => [grubOf()]
  t.match(await shown(controller), {
    trust: 'report',
    enrolled: /^[\da-f]{64}$/,
    verdict: 'unknown',
    bound: true
  })
  t.match((await machine.quote(controller)).body, { verdict: 'bad', reason: /PCR 8 differs/ })
  await controller.post('/config/node/node001', { newhostname: 'other' })
  t.match(await shown(controller, 'other'), { verdict: 'bad' })
  await controller.get('/config/node/other/_delete')
  t.equal(controller.daemon.trust.of('other'), undefined)
})

// rules 15.7
t.test('with require only tokens of the machine that proved itself are valid', async t => {
  const controller = await required(t, 'report')
  const tokensIn = (script = '') =>
    ['SVC_TOKEN', 'FILES_TOKEN'].map(name => new RegExp(`^${name}='?([\\w.-]+)`, 'm').exec(script)?.[1] ?? '')
  const statuses = async (tokens: readonly string[]) => {
    const asked = tokens.map(token => controller.get('/config/secrets/node/node001', { token }))
    return (await Promise.all(asked)).map(({ status }) => status)
  }
  const direct = await controller.get('/boot/install/node001', { token: null, source: machine.address })
  const ofAddress = tokensIn(direct.text)
  await enrolled(controller, machine)
  const proven = tokensIn(await machine.script(await machine.quote(controller)))
  await machine.boot(bootEvents(grubOf(' rd.break')))
  const bad = await machine.quote(controller)
  t.match(bad.body, { verdict: 'bad' })
  const ofBad = tokensIn(await machine.script(bad))
  t.strictSame(await statuses([...ofAddress, ...proven, ...ofBad]), [200, 200, 200, 200, 200, 200])

  const warned = /^node node001 has trust = require and no good verdict: without one a node gets no install/
  for (const path of ['/config/node/node001?dryrun=yes', '/config/node/node001'])
    t.match((await controller.post(path, { trust: 'require' })).headers['x-svcd-warning'], warned, path)
  const all = [...ofAddress, ...proven, ...ofBad]
  t.strictSame(
    [...new Set(await statuses(all))],
    [401],
    'a boot that is not good ends the tokens of those before'
  )
  const good = async () => {
    await machine.boot(bootEvents(grubOf()))
    return tokensIn(await machine.script(await machine.quote(controller)))
  }
  const second = await good()
  t.strictSame(await statuses(second), [200, 200])
  for (const trust of ['none', 'require']) {
    const { headers } = await controller.post('/config/group/compute?dryrun=yes', { trust })
    t.equal(headers['x-svcd-warning'], undefined)
  }
  await stranger.boot(bootEvents(grubOf()))
  t.match((await stranger.quote(controller)).body, { verdict: 'unknown', reason: /another TPM/ })
  await stranger.enrol(controller)
  t.strictSame(await statuses(second), [200, 200], "another machine with the node's address ends none")
  await controller.restart()
  controller.daemon.trust.measured = () => [grubOf()]
  t.strictSame(await statuses(second), [200, 200])
  const third = await good()
  t.strictSame(await statuses([...second, ...third]), [401, 401, 200, 200], 'each boot has its own')
  await controller.post('/config/node/node001/_distrust', {})
  t.strictSame(await statuses(third), [401, 401], 'a forgotten TPM takes its tokens with it')
  await machine.enrol(controller)
  await accept(controller)
  t.strictSame(await statuses(third), [401, 401], 'and does not bring them back')
  const again = tokensIn(await machine.script(await machine.quote(controller)))
  t.strictSame(await statuses(again), [200, 200])
})

// rules 15.1
t.test('nodes that come into a group with require are named, with and without a dry run', async t => {
  const controller = await required(t, 'none')
  await controller.post('/config/node/node001', { trust: '' })
  await controller.post('/config/group/strict', { trust: 'require' })
  const node = '/config/node/node'
  const ways = [
    [`${node}001`, { group: 'strict' }, 'node node001'],
    [`${node}002`, { group: 'strict' }, 'node node002'],
    [`${node}001/_clone`, { newnodename: 'node003' }, 'node node003'],
    [`${node}003`, { comment: 'as before' }, undefined],
    [`${node}003`, { group: 'compute' }, undefined]
  ] as const
  for (const [path, body, named] of ways)
    for (const query of ['?dryrun=yes', '']) {
      const { headers } = await controller.post(`${path}${query}`, body)
      const [warned] = headers['x-svcd-warning']?.toString().split(' has trust = require and no good') ?? []
      t.equal(warned, named, `${path}${query} ${JSON.stringify(body)}`)
    }
  const table = await controller.post('/config/node?format=csv', 'name,group\nnode004,strict\n')
  t.match(table.headers['x-svcd-warning'], /^node node004 has trust = require/)
})

// rules 15.2, 15.7
t.test('svcctl node trust shows what is accepted, asks, and forgets', async t => {
  const controller = await required(t)
  await machine.boot(bootEvents(grubOf()))
  const run = svcctlOf(t, controller)
  const trust = ['node', 'trust', 'node001']
  t.match(await run(trust), { code: 0, stdout: 'node001: trust require, no quote yet\n' })
  await machine.enrol(controller)
  const { ek, ak } = await shown(controller)
  t.match(await run(trust), { code: 2, stderr: /there is no terminal to ask on, use --yes/ })
  const no = await run(trust, 'n')
  t.match(no, { code: 1, stderr: /Trust this machine\? \[y\/N\] .*nothing was changed/s })
  for (const line of [
    'node001: trust require, unknown, waits for you',
    '  machine   ACME R1, firmware 1.0, Secure Boot on',
    `  new TPM   EK ${ek}`,
    `            AK ${ak}`,
    `  PCR 8     ${(await shown(controller)).pcrs[8]}`
  ])
    t.match(no.stdout, `${line}\n`)
  t.match(await shown(controller), { enrolled: null })
  t.match(await run(['node', 'trust', '@trust:pending'], 'y'), {
    code: 0,
    stdout: /node node001: its machine is trusted/
  })
  t.match((await machine.quote(controller)).body, { verdict: 'good' })
  t.match((await run(trust)).stdout, /^node001: trust require, good\n/)
  await stranger.boot(bootEvents(grubOf()))
  await stranger.enrol(controller)
  t.match(await run([...trust, '--yes']), {
    code: 1,
    stderr: /nothing was changed: another TPM is enrolled for node001: answer the question without --yes/
  })
  t.match(await run(trust, 'n'), {
    code: 1,
    stderr: /Trust this machine, in the place of another TPM: node001\?/
  })
  t.match((await machine.quote(controller)).body, { verdict: 'good' }, 'the enrolled one is as before')
  t.match(await run(['node', 'list', '@trust:good', '--fields', 'name']), { stdout: /node001/ })
  t.match(await run([...trust, '--forget'], 'y'), { code: 0, stdout: 'node node001: its TPM is forgotten\n' })
  t.match(await shown(controller), { enrolled: null, verdict: null })
  t.match(await run([...trust, '--firmware']), { code: 2 })
  // Settings that cannot work are refused before a machine is touched.
  const set = (fields: object) => controller.post('/config/node/node001', fields)
  t.match(await set({ provision_method: 'kickstart' }), {
    status: 400,
    body: { message: /"trust" is require/ }
  })
  t.match(await controller.post('/config/group/compute', { provision_method: 'preseed' }), { status: 400 })
  t.match(await set({ kerneloptions: 'quiet svc.trust=none' }), {
    status: 400,
    body: { message: /svc\.trust/ }
  })
  t.match(await set({ kerneloptions: '"svc.key=00"' }), { status: 400 })
  await set({ tpm_sha256: 'a label' })
  const answer = await machine.quote(controller)
  t.match(answer.body, { verdict: 'unknown', reason: /its tpm_sha256 is not 64 hexadecimal digits/ })
})
