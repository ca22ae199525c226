import t from 'tap'
import { AccessLog } from '../../lib/http/access-log.js'
import { memoryLog } from './helpers.js'

// rules 11.7
t.test('an address that would fill the log has its lines left out for the rest of a minute', async t => {
  const log = memoryLog()
  let now = 0
  const lines = new AccessLog(
    log,
    address => address === '127.0.0.1',
    () => now
  )
  for (let i = 0; i < 1_000; i++) {
    lines.refusal('10.141.0.1', 400, 'no')
    lines.handshake('127.0.0.1', 'ours')
  }
  lines.refusal('10.141.0.2', 400, 'another')
  const of = (address: string) => log.lines.filter(line => line.includes(address))
  t.equal(of('10.141.0.1').length, 601)
  t.match(
    of('10.141.0.1').at(-1),
    /10\.141\.0\.1 had 600 lines within a minute; its further ones are left out/
  )
  t.equal(of('10.141.0.2').length, 1)
  t.equal(of('127.0.0.1').length, 1_000)
  now = 60_000
  lines.refusal('10.141.0.1', 400, 'later')
  t.match(of('10.141.0.1').slice(-2), [/400 lines of 10\.141\.0\.1 were left out/, /later/])
})
