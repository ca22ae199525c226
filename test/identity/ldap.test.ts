import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createServer as createTlsServer } from 'node:tls'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { isThisMachine } from '../../lib/base/request-source.js'
import { loadConfig } from '../../lib/config/load.js'
import { Ldap, plainDn } from '../../lib/identity/ldap.js'
import { makeCertificate } from '../support/certificate.js'
import { scratch } from '../support/scratch.js'
import { startSlapd } from '../support/slapd.js'

const ini = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
const slapd = await startSlapd(t)

function directory(settings: readonly string[], limitMs?: number) {
  const log: string[] = []
  let at = 0
  const ldap = new Ldap({
    settings: loadConfig(ini, settings).auth,
    log: createLog('info', line => log.push(line)),
    ticks: () => at,
    ...(limitMs === undefined ? {} : { limitMs })
  })
  const pass = (ms: number) => {
    at += ms
  }
  return { ldap, log, pass }
}
const unanswered = { status: 503, code: 'directory-unavailable' }

// rules 5.10
t.test('a user of the directory logs in, with the role of a group', async t => {
  for (const url of [slapd.plain, slapd.named, slapd.tls, `ldap://127.0.0.1:1, ${slapd.tls}`]) {
    const { ldap } = directory(slapd.settings(url))
    t.strictSame(await ldap.login('alice', 'wonderland'), { user: 'alice', grant: { role: 'admin' } }, url)
    t.strictSame(
      await ldap.login('bob', 'builder'),
      { user: 'bob', grant: { role: 'operator', groups: ['gpu'] } },
      'a group by its DN, whose comma is spelt in another way'
    )
    t.strictSame(
      await ldap.login('carol', 'choir'),
      { user: 'carol', grant: { role: 'viewer' } },
      'memberUid'
    )
    t.equal(await ldap.login('alice', 'builder'), undefined, 'the password of another user')
    t.equal(await ldap.login('nobody', 'x'), undefined)
    t.strictSame(await ldap.faults(), url.includes(':1,') ? [await refusedAt(ldap)] : [])
  }
})
const refusedAt = async (ldap: Ldap) => (await ldap.faults())[0] ?? ''

// rules 5.10
t.test('no group, no role', async t => {
  const { ldap, log } = directory(slapd.settings(slapd.tls))
  t.equal(await ldap.login('dave', 'nobody'), undefined)
  t.match(log.join(), /user ldap:dave has no role: \[auth\] ldap_roles names none of its groups/)
  const all = directory([...slapd.settings(slapd.tls), 'auth.ldap_roles=viewer=*'])
  t.strictSame(await all.ldap.login('dave', 'nobody'), { user: 'dave', grant: { role: 'viewer' } })
})

// rules 5.10
t.test('a name is what the directory calls it, and no filter', async t => {
  const { ldap } = directory([...slapd.settings(slapd.tls), 'auth.ldap_roles=viewer=*'])
  t.match(await ldap.login('ALICE', 'wonderland'), { user: 'alice' })
  t.match(await ldap.login('odd*(name)\\,', 'odd'), { user: 'odd*(name)\\,' })
  t.match(await ldap.login('Zoë', 'ünïcode'), { user: 'Zoë' })
  for (const name of [
    '*',
    'a*',
    'alice)(uid=*',
    '*)(|(uid=*',
    'alice\0',
    'al\u0000ice',
    '',
    ' ',
    'x\n',
    '\ud800'
  ])
    t.equal(await ldap.login(name, 'wonderland'), undefined, JSON.stringify(name))
})

// rules 5.10
t.test('an empty password is refused: the server would take it for a bind of nobody', async t => {
  const { ldap } = directory(slapd.settings(slapd.tls))
  t.equal(await ldap.login('alice', ''), undefined)
  t.equal(await ldap.login('alice', '\0'), undefined)
  t.equal(await ldap.login('alice', 'wonderland\0'), undefined)
})

// rules 5.10
t.test('two entries of one name are refused', async t => {
  await slapd.modify(
    'dn: uid=twin,ou=mine,dc=example,dc=org\nchangetype: add\nobjectClass: account\n' +
      'objectClass: simpleSecurityObject\nuid: alice\nuid: twin\nuserPassword: evil\n'
  )
  const filter = 'auth.ldap_filter=(uid={user})'
  const { ldap, log } = directory([...slapd.settings(slapd.tls), filter])
  t.equal(await ldap.login('alice', 'wonderland'), undefined)
  t.equal(await ldap.login('alice', 'evil'), undefined)
  t.match(log.join(), /several entries are user alice/)
  await slapd.modify('dn: uid=twin,ou=mine,dc=example,dc=org\nchangetype: delete\n')
})

// rules 5.10
t.test('a group whose name looks like another one is another one', async t => {
  t.equal(plainDn('CN=GPU\\, Team , OU = groups'), plainDn('cn=gpu\\2c team,ou=groups'))
  t.not(plainDn('cn=a\\,ou=x'), plainDn('cn=a,ou=x'))
  t.not(plainDn('cn=a\\2cou\\3dx'), plainDn('cn=a,ou=x'))
  t.equal(plainDn('cn=a  b ,  ou = x'), 'cn=a  b,ou=x')
  const { ldap } = directory([...slapd.settings(slapd.tls), 'auth.ldap_roles=admin=cn=svcd-admins,ou=mine'])
  t.equal(await ldap.login('alice', 'wonderland'), undefined, 'a DN is compared as a whole')
})

// rules 5.10
t.test('a DN takes time that grows with its length alone', t => {
  const cost = (blanks: number) => {
    const text = `cn=a${' '.repeat(blanks)}b`
    const runs = [1, 2, 3].map(() => {
      const begun = performance.now()
      plainDn(text)
      return performance.now() - begun
    })
    return Math.min(...runs)
  }
  // 64 times as long: with the square of the length it would be 4,096 times the time.
  t.ok(cost(32_000) < 500 * Math.max(cost(500), 0.005))
  t.end()
})

// rules 5.10
t.test('a name that begins as 127 is that of another machine, to which no password goes in the clear', t => {
  for (const host of ['127.0.0.1', '127.1.2.3', '[::1]']) t.ok(isThisMachine(new URL(`ldap://${host}`)), host)
  for (const host of ['127.example.org', '127.0.0.1.example.org', 'localhost', '128.0.0.1', '[::2]'])
    t.notOk(isThisMachine(new URL(`ldap://${host}`)), host)
  t.end()
})

// rules 5.10
t.test('TLS: another authority, another name, and plain ldap to a name', async t => {
  const other = await makeCertificate(scratch(t), 'other')
  const wrong = directory([...slapd.settings(slapd.tls), `auth.ldap_ca_certificate=${other.certificate}`])
  await t.rejects(wrong.ldap.login('alice', 'wonderland'), unanswered)
  t.match(wrong.log.join(), /not trusted; name its authority in \[auth\] ldap_ca_certificate/)
  const start = directory([...slapd.settings(slapd.named), `auth.ldap_ca_certificate=${other.certificate}`])
  await t.rejects(start.ldap.login('alice', 'wonderland'), unanswered)
  t.match(start.log.join(), /not trusted/)
  t.match(await start.ldap.faults(), [/not trusted/])
})

// rules 5.10
t.test('a wrong password of svcd itself is no wrong password of the user', async t => {
  const file = join(scratch(t), 'password')
  writeFileSync(file, 'wrong\n', { mode: 0o600 })
  const { ldap, log } = directory([...slapd.settings(slapd.tls), `auth.ldap_bind_password_file=${file}`])
  await t.rejects(ldap.login('alice', 'wonderland'), unanswered)
  t.match(log.join(), /\[auth\] ldap_bind_dn: ldaps:\S+ refuses cn=svcd,dc=example,dc=org/)
  t.notMatch(log.join(), /wrong\b(?!\/)/, 'without the password')
  chmodSync(file, 0o644)
  t.match(await ldap.faults(), [/others than its owner .*\(chmod 0640/])
  t.match(
    await directory([...slapd.settings(slapd.tls), 'auth.ldap_bind_password_file=/none']).ldap.faults(),
    [/^\[auth\] ldap_bind_password_file: .*\/none/]
  )
  const nowhere = directory([...slapd.settings(slapd.tls), 'auth.ldap_base=dc=example,dc=com'])
  t.match(await nowhere.ldap.faults(), [/^\[auth\] ldap_base: .* has no dc=example,dc=com/])
})

/** A server that does this with each connection. */
async function hostile(t: Test, serve: (socket: Socket) => void) {
  const sockets: Socket[] = []
  const server = createServer(socket => {
    sockets.push(socket.on('error', () => {}))
    serve(socket)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { url: `ldap://127.0.0.1:${(server.address() as AddressInfo).port}`, sockets }
}

const message = (id: number, tag: number, body: readonly number[]) => {
  const inner = [0x02, 0x01, id, tag, body.length, ...body]
  return Buffer.from([0x30, inner.length, ...inner])
}
/** The number that the library gives its first question. */
const first = 2
const success = [0x0a, 1, 0, 4, 0, 4, 0]

// rules 5.10
t.test('a server that hangs, hangs up, or sends what it likes: 503, and nothing else suffers', async t => {
  const cases: Record<string, (socket: Socket) => void> = {
    hangs: () => {},
    'hangs up': socket => socket.destroy(),
    'hangs up at the first question': socket => socket.once('data', () => socket.destroy()),
    garbage: socket => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
    'a long promise': socket => socket.write(Buffer.from([0x30, 0x84, 0x7f, 0xff, 0xff, 0xff])),
    'many small messages at once': socket => {
      // The smallest that the library reads: a reference without an address.
      const one = message(9, 0x73, [])
      socket.write(Buffer.concat(Array.from({ length: 60_000 }, () => one)))
    },
    'empty sequences at once': socket => socket.write(Buffer.alloc(400_000, '0\0\0', 'latin1')),
    'a bind that fails in a strange way': socket =>
      socket.on('data', () => socket.write(message(first, 0x61, [0x0a, 1, 80, 4, 0, 4, 0])))
  }
  await Promise.all(
    Object.entries(cases).map(async ([name, serve]) => {
      const { url } = await hostile(t, serve)
      const { ldap, log } = directory(slapd.settings(url), 500)
      await t.rejects(ldap.login('alice', 'wonderland'), unanswered, name)
      t.match(log.join(), /a log-in fails: \[auth\] ldap_url: ldap:/, `${name}: ${log}`)
    })
  )
})

// rules 5.10
t.test('a server that sends without an end is cut off', async t => {
  const { url } = await hostile(t, socket => {
    const chunk = Buffer.alloc(65_536, 0)
    chunk.set([0x30, 0x84, 0x7f, 0xff, 0xff, 0xff])
    const more = () => {
      while (!socket.destroyed && socket.write(chunk));
      socket.once('drain', more)
    }
    more()
  })
  const { ldap, log } = directory(slapd.settings(url), 600_000)
  await t.rejects(ldap.login('alice', 'wonderland'), unanswered)
  t.match(log.join(), /it sends more than 1048576 bytes/)
})

// rules 5.10
t.test('a server that has failed rests, and another one is asked meanwhile', async t => {
  let asked = 0
  const { url } = await hostile(t, socket => {
    asked++
    socket.destroy()
  })
  const alone = directory(slapd.settings(url))
  await t.rejects(alone.ldap.login('alice', 'wonderland'), unanswered)
  await t.rejects(alone.ldap.login('alice', 'wonderland'), unanswered)
  t.equal(asked, 1)
  alone.pass(5001)
  await t.rejects(alone.ldap.login('alice', 'wonderland'), unanswered)
  t.equal(asked, 2)
  const both = directory(slapd.settings(`${url}, ${slapd.tls}`))
  for (let i = 0; i < 3; i++) t.match(await both.ldap.login('alice', 'wonderland'), { user: 'alice' })
  t.equal(asked, 3, 'the one that answers is asked first from then on')
})

// rules 5.10
t.test('StartTLS: what came before TLS is not read as if it had come through it', async t => {
  const { certificate, key } = await makeCertificate(scratch(t), 'localhost')
  const through: Buffer[] = []
  const pair = { cert: readFileSync(certificate), key: readFileSync(key) }
  const tls = createTlsServer(pair, socket => socket.on('data', data => through.push(data)))
  const { url } = await hostile(t, socket =>
    socket.once('data', () => {
      socket.write(Buffer.concat([message(first, 0x78, success), Buffer.from([0x30, 0x50, 0x02, 0x01])]))
      tls.emit('connection', socket)
    })
  )
  const { ldap, log } = directory([
    ...slapd.settings(url.replace('127.0.0.1', 'localhost')),
    `auth.ldap_ca_certificate=${certificate}`
  ])
  await t.rejects(ldap.login('alice', 'wonderland'), unanswered)
  t.match(log.join(), /it sends more than its answer before TLS/)
  t.equal(Buffer.concat(through).length, 0)
})

// rules 5.10
t.test('a name that begins like an address of this machine gets no password in the clear', async t => {
  const seen: Buffer[] = []
  const { url } = await hostile(t, socket => socket.on('data', data => seen.push(data) && socket.destroy()))
  const { ldap } = directory(slapd.settings(url.replace('127.0.0.1', '127.1')))
  await t.rejects(ldap.login('alice', 'wonderland'), unanswered)
  t.match(seen[0]?.toString('latin1'), /1\.3\.6\.1\.4\.1\.1466\.20037/)
})

// rules 5.10
t.test('StartTLS: a refusal, or bytes before TLS, and no password goes out', async t => {
  const seen: Buffer[] = []
  for (const answer of [
    message(first, 0x78, [0x0a, 1, 2, 4, 0, 4, 0]),
    Buffer.concat([message(first, 0x78, success), Buffer.from([0x30, 0x50, 0x02, 0x01])])
  ]) {
    const { url } = await hostile(t, socket =>
      socket.on('data', data => {
        seen.push(data)
        socket.write(answer)
      })
    )
    const { ldap } = directory(slapd.settings(url.replace('127.0.0.1', 'localhost')))
    await t.rejects(ldap.login('alice', 'wonderland'), unanswered)
  }
  t.notMatch(Buffer.concat(seen).toString('latin1'), /searching|wonderland/)
  t.match(seen[0]?.toString('latin1'), /1\.3\.6\.1\.4\.1\.1466\.20037/)
})
