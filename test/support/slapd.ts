import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { makeCertificate } from './certificate.js'
import { type Child, startChild } from './child.js'
import { freePort } from './free-port.js'
import { output, requirePrograms } from './programs.js'
import { scratch } from './scratch.js'

const base = 'dc=example,dc=org'

/** Entries of people: name → password. Several have odd names, or are there twice. */
const people = {
  alice: 'wonderland',
  bob: 'builder',
  carol: 'choir',
  dave: 'nobody',
  'odd*(name)\\,': 'odd',
  Zoë: 'ünïcode'
}
/** Groups by their kind: name → names of people. */
const groups = { 'svcd-admins': ['alice'], 'GPU, team': ['bob', 'alice'], 'odd\\ = group': ['odd*(name)\\,'] }

/** A real slapd with people, groups of three kinds and memberOf, with TLS. */
export interface Slapd {
  readonly child: Child
  readonly ca: string
  readonly plain: string
  /** By this name it wants StartTLS: a name is no loopback address. */
  readonly named: string
  readonly tls: string
  readonly passwordFile: string
  /** The keys of the ini for it, as `auth.key=value`. */
  settings(url: string): string[]
  /** Changes entries by LDIF. */
  modify(ldif: string): Promise<void>
}

const attribute = (name: string, value: string) => `${name}:: ${Buffer.from(value).toString('base64')}`
const escaped = (value: string) =>
  value.replace(/[\\,+"<>;=*()]/g, sign => `\\${sign.charCodeAt(0).toString(16)}`)
const personOf = (name: string) => `uid=${escaped(name)},ou=people,${base}`

function ldif(): string {
  const entries = [
    [`dn: ${base}`, 'objectClass: dcObject', 'objectClass: organization', 'o: Example', 'dc: example'],
    ...['people', 'groups', 'mine'].map(ou => [
      `dn: ou=${ou},${base}`,
      'objectClass: organizationalUnit',
      `ou: ${ou}`
    ]),
    [
      `dn: cn=svcd,${base}`,
      'objectClass: organizationalRole',
      'objectClass: simpleSecurityObject',
      'cn: svcd'
    ].concat('userPassword: searching'),
    ...Object.entries(people).map(([name, password], i) => [
      attribute('dn', personOf(name)),
      ...['objectClass: inetOrgPerson', 'objectClass: posixAccount', attribute('uid', name)],
      ...[
        attribute('cn', name),
        'sn: x',
        `uidNumber: ${i + 1000}`,
        'gidNumber: 1000',
        'homeDirectory: /home/x'
      ],
      attribute('userPassword', password)
    ]),
    ...Object.entries(groups).map(([name, members]) => [
      attribute('dn', `cn=${escaped(name)},ou=groups,${base}`),
      ...['objectClass: groupOfNames', attribute('cn', name)],
      ...members.map(member => attribute('member', personOf(member)))
    ]),
    [
      `dn: cn=hpc-posix,ou=groups,${base}`,
      ...['objectClass: posixGroup', 'cn: hpc-posix', 'gidNumber: 2000', 'memberUid: carol']
    ]
  ]
  return `${entries.map(lines => lines.join('\n')).join('\n\n')}\n`
}

/** Starts slapd for one test, on ports of loopback. */
export async function startSlapd(t: Test): Promise<Slapd> {
  requirePrograms('slapd', 'ldapmodify')
  const directory = scratch(t)
  const { certificate, key } = await makeCertificate(directory, 'localhost')
  const [port, tlsPort] = [await freePort(), await freePort()]
  mkdirSync(join(directory, 'data'))
  const schemas = ['core', 'cosine', 'nis', 'inetorgperson']
  const config = [
    ...schemas.map(name => `include /etc/ldap/schema/${name}.schema`),
    ...['modulepath /usr/lib/ldap', 'moduleload back_mdb', 'moduleload memberof', 'loglevel none'],
    ...[`TLSCertificateFile ${certificate}`, `TLSCertificateKeyFile ${key}`],
    ...['database mdb', `suffix ${base}`, `rootdn cn=root,${base}`, 'rootpw root'],
    ...[`directory ${join(directory, 'data')}`, 'overlay memberof'],
    'access to attrs=userPassword by anonymous auth by * none',
    `access to * by dn.exact="cn=svcd,${base}" read by self read by * none`
  ]
  const [conf, data, passwordFile] = ['slapd.conf', 'data.ldif', 'password'].map(name =>
    join(directory, name)
  ) as [string, string, string]
  writeFileSync(conf, `${config.join('\n')}\n`)
  writeFileSync(data, ldif())
  writeFileSync(passwordFile, 'searching\n', { mode: 0o600 })
  const plain = `ldap://127.0.0.1:${port}`
  const tls = `ldaps://127.0.0.1:${tlsPort}`
  const root = ['-x', '-H', plain, '-D', `cn=root,${base}`, '-w', 'root']
  const child = await startChild(['slapd', '-d', '0', '-h', `${plain} ${tls}`, '-f', conf], () =>
    output('ldapwhoami', root).then(
      () => true,
      () => false
    )
  )
  t.teardown(() => child.kill())
  // Over the wire, so that the overlay writes memberOf.
  await output('ldapadd', [...root, '-f', data])
  let changes = 0
  return {
    ...{ child, ca: certificate, plain, tls, named: `ldap://localhost:${port}`, passwordFile },
    settings: url => [
      `auth.ldap_url=${url}`,
      `auth.ldap_ca_certificate=${certificate}`,
      `auth.ldap_bind_dn=cn=svcd,${base}`,
      `auth.ldap_bind_password_file=${passwordFile}`,
      `auth.ldap_base=${base}`,
      `auth.ldap_roles=operator:gpu=cn=GPU\\, team,ou=groups,${base} | admin=svcd-admins | viewer=hpc-posix`
    ],
    async modify(text) {
      const file = join(directory, `change${++changes}.ldif`)
      writeFileSync(file, text)
      await output('ldapmodify', [...root, '-f', file])
    }
  }
}

/** The names of the certificate of a slapd, for messages. */
export const certificateText = ({ ca }: Slapd) => readFileSync(ca, 'utf8')
