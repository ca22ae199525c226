// How one controller asks another (rules 6.11, 11.19).
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type Trust, trustFor } from '../../lib/client/certificates.js'
import { certificateAdvice, requestController } from '../../lib/client/controllers.js'
import type { NoResponseError } from '../../lib/client/request.js'
import { readPair } from '../../lib/http/certificate.js'
import { route, start } from '../http/helpers.js'
import { makeCertificate, makeIssued } from '../support/certificate.js'
import { instead } from '../support/instead.js'
import { scratch } from '../support/scratch.js'

const ask = (port: number) =>
  requestController({
    ...{
      url: `http://127.0.0.1:${port}`,
      path: '/',
      headers: {},
      tls: { rejectUnauthorized: true },
      headMs: 600_000
    },
    signal: new AbortController().signal
  })

const withAdvice = (error: NoResponseError) => {
  throw Object.assign(new Error(error.reason), { certificate: certificateAdvice(error.code) })
}

t.test('another protocol is no answer', async t => {
  const port = await instead(t, socket =>
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n')
  )
  await t.rejects(ask(port), { message: 'it ended the connection', code: undefined })
})

t.test('who goes on promising an answer is left', async t => {
  const port = await instead(t, async socket => {
    while (!socket.destroyed) {
      socket.write('HTTP/1.1 100 Continue\r\n\r\n')
      await sleep(1)
    }
  })
  await t.rejects(ask(port), { message: 'it goes on promising an answer' })
})

t.test('who promises an answer and gives it has answered', async t => {
  const port = await instead(t, socket =>
    socket.end(`${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(3)}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n`)
  )
  const answer = await ask(port)
  t.equal(answer.status, 200)
  answer.body.resume()
})

// rules 11.16
t.test('the authority of [store] ca is trusted; what is wrong with a certificate is told', async t => {
  const directory = scratch(t)
  const authority = await makeCertificate(directory, 'authority')
  const ca = readFileSync(authority.certificate)
  const controller = async (name: string, days?: number) => {
    const { server } = await start(t, [route('GET', '/', () => ({ status: 200, text: 'here' }))])
    const { context } = await readPair(await makeIssued(directory, name, authority, days))
    const { port } = await server.listenTls('127.0.0.1', 0, () => context)
    return (trust: Trust, host = '127.0.0.1') =>
      requestController({
        ...{ url: `https://${host}:${port}`, path: '/', headers: {}, tls: trust, headMs: 60_000 },
        signal: new AbortController().signal
      }).then(answer => {
        answer.body.resume()
        return answer.status
      }, withAdvice)
  }
  const ask = await controller('c1')
  t.equal(await ask(trustFor(true, ca)), 200)
  t.equal(await ask(trustFor(false, undefined)), 200, 'it is not checked')
  t.equal(await ask(trustFor(false, ca), 'localhost'), 200, 'it is not checked')
  await t.rejects(ask(trustFor(true, undefined)), {
    message: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    certificate: /^its certificate is not trusted; name its authority in \[store\] ca/
  })
  await t.rejects(ask(trustFor(true, ca), 'localhost'), {
    message: 'ERR_TLS_CERT_ALTNAME_INVALID',
    certificate: /^its certificate is for another name; its \[store\] url/
  })
  const old = await controller('c2', -1)
  await t.rejects(old(trustFor(true, ca)), {
    message: 'CERT_HAS_EXPIRED',
    certificate: /^its certificate has expired, or is not valid yet; renew it there/
  })
})
