import t from 'tap'
import { AddressSet, formatAddress, parseAddress, parsePrefix, toAddress } from '../../lib/model/address.js'

/** A small generator with a seed, so that a failure can be run again. */
function random(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

// rules 3.7
t.test('the first free address is what a search one by one finds', async t => {
  const seed = Date.now() & 0xffff
  const next = random(seed)
  const set = new AddressSet()
  const plain = new Set<number>()
  const base = toAddress('10.0.254.0')
  for (let step = 0; step < 20_000; step++) {
    const address = base + next(1024)
    if (next(3) > 0) {
      set.add(address)
      plain.add(address)
    } else {
      set.remove(address)
      plain.delete(address)
    }
    if (step % 20 !== 0) continue
    const from = base + next(1100) - 40
    let expected: number | undefined = from
    while (plain.has(expected)) expected++
    const last = from + next(600)
    if (expected > last) expected = undefined
    if (set.firstFree(from, last) !== expected || set.has(address) !== plain.has(address))
      return t.fail(`seed ${seed}, step ${step}: first free from ${formatAddress(from)}`)
  }
})

t.test('whole blocks are stepped over, to the ends of the address space', async t => {
  const set = new AddressSet()
  const first = toAddress('10.0.0.0')
  for (let address = first; address < first + 65536; address++) set.add(address)
  t.equal(set.firstFree(first, toAddress('10.255.255.255')), toAddress('10.1.0.0'))
  t.equal(set.firstFree(first, toAddress('10.0.255.255')), undefined)
  set.remove(toAddress('10.0.77.3'))
  t.equal(set.firstFree(first, toAddress('10.0.255.255')), toAddress('10.0.77.3'))
  set.add(toAddress('255.255.255.255'))
  t.equal(set.firstFree(toAddress('255.255.255.255'), toAddress('255.255.255.255')), undefined)
  t.equal(set.firstFree(0, 0), 0)
})

t.test('addresses and prefixes in text', async t => {
  for (const text of ['0.0.0.0', '10.141.0.1', '255.255.255.255'])
    t.equal(formatAddress(parseAddress(text) ?? -1), text)
  for (const text of ['', '10.1', '10.1.1.256', '010.1.1.1', '10.1.1.1 ', '::1', '0x7f.1.1.1', '1.2.3.4.5'])
    t.equal(parseAddress(text), undefined, text)
  t.same(parsePrefix('10.141.3.4/16'), {
    first: toAddress('10.141.0.0'),
    last: toAddress('10.141.255.255'),
    length: 16
  })
  t.same(parsePrefix('0.0.0.0/0'), { first: 0, last: 2 ** 32 - 1, length: 0 })
  for (const text of ['10.0.0.0', '10.0.0.0/33', '10.0.0.0/', '10.0.0.0/08', '10.0.0.0/-1', '/8'])
    t.equal(parsePrefix(text), undefined, text)
})
