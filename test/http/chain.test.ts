import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { connect, createServer, type DetailedPeerCertificate } from 'node:tls'
import t from 'tap'
import { Certificate, lacksRoot, readPair } from '../../lib/http/certificate.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { memoryLog } from './helpers.js'

const directory = scratch(t)
const at = (name: string) => join(directory, name)

/** Makes NAME.crt and NAME.key, signed by `by`, else by itself. */
async function issue(name: string, by: string | undefined, isAuthority: boolean): Promise<string> {
  const extensions = `basicConstraints=critical,CA:${isAuthority ? 'TRUE' : 'FALSE'}\nsubjectAltName=IP:127.0.0.1\n`
  writeFileSync(at('ext'), extensions)
  const key = [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-keyout',
    at(`${name}.key`)
  ]
  await output('openssl', ['req', '-new', ...key, '-subj', `/O=site/CN=${name}`, '-out', at('csr')])
  const signer = by
    ? ['-CA', at(`${by}.crt`), '-CAkey', at(`${by}.key`), '-CAcreateserial']
    : ['-signkey', at(`${name}.key`)]
  await output('openssl', [
    'x509',
    '-req',
    '-in',
    at('csr'),
    '-days',
    '90',
    '-extfile',
    at('ext'),
    ...signer,
    '-out',
    at(`${name}.crt`)
  ])
  return readFileSync(at(`${name}.crt`), 'utf8')
}

/** The subjects that a client is sent. */
async function sent(context: Awaited<ReturnType<typeof readPair>>['context']): Promise<string[]> {
  const server = createServer({ SNICallback: (_, done) => done(null, context) })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const socket = connect({ port, host: '127.0.0.1', servername: 'x', rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const names: string[] = []
  let one: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true)
  while (one && !names.includes(String(one.subject.CN))) {
    names.push(String(one.subject.CN))
    one = one.issuerCertificate
  }
  socket.destroy()
  server.close()
  return names
}

// rules 4.36
t.test('the chain is sent up to the root, where the root is known', async t => {
  const root = await issue('root', undefined, true)
  const middle = await issue('middle', 'root', true)
  const leaf = await issue('leaf', 'middle', false)
  const stranger = await issue('stranger', undefined, true)
  const files = { certificate: at('chain.crt'), key: at('leaf.key') }
  const read = async (chain: string[], authorities?: string[]) => {
    writeFileSync(files.certificate, chain.join('\n'))
    writeFileSync(at('ca.pem'), (authorities ?? []).join('# a remark\n'))
    const pair = await readPair({ ...files, ...(authorities ? { authorities: at('ca.pem') } : {}) })
    return { pair, names: await sent(pair.context), lacks: lacksRoot(pair, files) }
  }
  const whole = ['leaf', 'middle', 'root']
  t.match(await read([leaf, middle, root]), { names: whole, lacks: undefined })
  t.match(await read([leaf, middle], [stranger, root]), { names: whole, lacks: undefined })
  t.match(
    await read([leaf], [root, middle]),
    { names: whole, lacks: undefined },
    'what is between them as well'
  )
  t.match(await read([leaf, middle], [stranger]), {
    names: ['leaf', 'middle'],
    lacks: `iPXE with TRUST= takes a certificate whose root it is sent: append O=site, CN=root to ${files.certificate}, or name its file in [store] ca`
  })
  t.match(await read([leaf]), { names: ['leaf'], lacks: /append O=site, CN=middle to/ })
  t.match(
    await read([leaf, middle], ['-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n', root]),
    { names: whole }
  )
  const missing = await readPair({ ...files, authorities: at('none.pem') })
  t.match(lacksRoot(missing, files), /append/, 'a file that is not there is told elsewhere')
  const self = await readPair({ certificate: at('root.crt'), key: at('root.key') })
  t.equal(lacksRoot(self, files), undefined, 'signed by itself')
})

// Each certificate of a bundle is parsed, which takes longer than a turn of the event loop may.
t.test('a large bundle of authorities is read in short steps, and once', async t => {
  const files = { certificate: at('chain.crt'), key: at('leaf.key'), authorities: at('many.pem') }
  const text = (name: string) => readFileSync(at(`${name}.crt`), 'utf8')
  writeFileSync(files.certificate, text('leaf'))
  writeFileSync(
    files.authorities,
    [...Array(1500).fill(text('stranger')), text('middle'), text('root')].join('')
  )
  let [longest, last, isOver] = [0, performance.now(), false]
  const tick = () => {
    longest = Math.max(longest, performance.now() - last)
    last = performance.now()
    if (!isOver) setImmediate(tick)
  }
  tick()
  const begun = performance.now()
  const { unknownRoot } = await readPair(files)
  const whole = performance.now() - begun
  isOver = true
  // The last turn has not ended yet.
  tick()
  t.equal(unknownRoot, undefined)
  t.ok(longest < whole / 3, `${Math.round(longest)} ms of ${Math.round(whole)} in one turn`)
})

t.test('the start says so where nodes use https', async t => {
  for (const [forNodes, warnings] of [
    [true, 1],
    [false, 0]
  ] as const) {
    const log = memoryLog()
    const files = { certificate: at('leaf.crt'), key: at('leaf.key') }
    const certificate = await Certificate.open(files, { log, now: Date.now, forNodes })
    await certificate.close()
    t.equal(log.lines.filter((line: string) => /iPXE with TRUST=/.test(line)).length, warnings)
  }
})
