import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { installInterface } from '../support/install-data.js'
import type { Shell } from '../support/node-root.js'
import { completed, install } from './install.js'
import { allShells } from './installing-node.js'

const library = fileURLToPath(new URL('../../templates/install/lib', import.meta.url))

const commands: Record<Shell, readonly string[]> = {
  bash: ['bash'],
  ash: ['busybox', 'ash'],
  dash: ['dash'],
  klibc: ['/usr/lib/klibc/bin/sh']
}

/** What the script's json_string makes of bytes, read back as JSON. */
function jsonString(shell: Shell, bytes: Buffer): string {
  const [file, ...first] = commands[shell]
  const escaped = [...bytes].map(byte => `\\0${byte.toString(8).padStart(3, '0')}`).join('')
  const script = `. "$1/base.sh"; . "$1/text.sh"; json_string "$(printf '%b' "$2"; printf x)"`
  const json = execFileSync(file ?? '', [...first, '-c', script, 'sh', library, escaped])
  t.ok(json.every(byte => byte < 128))
  return (JSON.parse(json.toString()) as string).slice(0, -1)
}

const hardware = (vendor: string, assettag: string) =>
  `case $2 in system-manufacturer) echo '# a warning'; printf '${vendor}\\n' ;; *) printf '${assettag}\\n' ;; esac`

for (const shell of allShells) {
  // rules 4.16
  t.test(`reports are the JSON that svcd takes, ${shell}`, async t => {
    const done = await install(t, {
      shell,
      environment: { SVC_BOOTPROTO: 'dhcp' },
      programs: { dmidecode: hardware('Dell Inc.  ', 'A 17') },
      data: {
        interfaces: [installInterface({ interface: 'eth7', ipaddress: '' })],
        provision_interface: 'eth7'
      }
    })
    completed(t, done)
    t.strictSame(
      done.controller.requests.slice(0, 3).map(({ url, body }) => [url, body]),
      [
        ['/monitor/node/node001', '{"monitor":{"status":{"node001":{"state":"installer.started"}}}}'],
        ['/config/node/node001', '{"config":{"node":{"node001":{"vendor":"Dell Inc.","assettag":"A 17"}}}}'],
        [
          '/config/node/node001',
          '{"config":{"node":{"node001":{"name":"node001","interfaces":' +
            '[{"interface":"eth7","force":true,"ipaddress":"127.0.0.1"}]}}}}'
        ]
      ]
    )
    for (const { headers, method } of done.controller.requests) {
      t.equal(headers['x-access-tokens'], 'the.node.token')
      if (method === 'POST') t.equal(headers['content-type'], 'application/json')
    }
  })

  t.test(`any bytes are correct JSON, ${shell}`, async t => {
    const valid = [
      '',
      '-n',
      '\\',
      '"q" \\b\tt\n',
      'é€😀\u0800\uffff',
      '$(touch /pwned) `id`',
      '\u0001\u001b[0m\u007f',
      "it's"
    ]
    for (const text of valid) t.equal(jsonString(shell, Buffer.from(text)), text)
    t.equal(jsonString(shell, Buffer.from('61ff62c3', 'hex')), 'a\ufffdb\ufffd')
    t.equal(jsonString(shell, Buffer.from('c0afe08080', 'hex')).replaceAll('\ufffd', ''), '', 'overlong')
    t.equal(jsonString(shell, Buffer.from('eda080', 'hex')).replaceAll('\ufffd', ''), '', 'a surrogate')
    t.equal(jsonString(shell, Buffer.from('f4908080', 'hex')).replaceAll('\ufffd', ''), '', 'past U+10FFFF')
    for (let i = 1; i < 256; i += 9) t.type(jsonString(shell, Buffer.from([97, i, 98])), 'string')
  })
}

// rules 4.16
t.test('a static address, or no boot interface, is not reported', async t => {
  const still = await install(t, { shell: 'ash' })
  const unknown = await install(t, { shell: 'ash', environment: { SVC_BOOTPROTO: 'dhcp', SVC_BOOTIF: '' } })
  const absent = await install(t, {
    shell: 'ash',
    environment: { SVC_BOOTPROTO: 'dhcp', SVC_BOOTIF: 'none0' }
  })
  for (const done of [still, unknown, absent]) {
    completed(t, done)
    t.strictSame(done.controller.posts('/config/'), [])
  }
})
