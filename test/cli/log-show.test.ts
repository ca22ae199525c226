import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { showLog } from '../../lib/cli/log-show.js'
import { FileMedium } from '../../lib/store/files/medium.js'
import { Store } from '../../lib/store/store.js'
import { node, optionsFor, systemError, TestFiles } from '../store/fixtures.js'
import { openLines } from '../store/node-values.js'
import { scratch } from '../support/scratch.js'

t.test('the log in words: while svcd runs, after a kill, and damaged', async t => {
  const state = scratch(t)
  const shown = () => {
    const lines: string[] = []
    const isWhole = showLog({ paths: { state } } as Parameters<typeof showLog>[0], line => lines.push(line))
    return { isWhole, lines }
  }
  t.strictSame(shown(), { isWhole: true, lines: ['the log is empty'] })
  const files = new TestFiles()
  const medium = new FileMedium({ directory: state, files })
  const store = await Store.open({ ...optionsFor(state), medium })
  const { add, remove } = await openLines(medium)
  files.before = operation => {
    if (operation === 'replace') throw systemError('EIO')
  }
  await store.change(tx => tx.put('node', 'a', node('a')))
  await store.change(tx => {
    tx.remove('node', 'a')
    for (let i = 0; i < 15; i++) tx.put('node', `n${i}`, node(`n${i}`))
  })
  await add('n1', 'x')
  await add('n1', 'y')
  await remove('n1')
  const long = 'z'.repeat(600_000)
  await store.change(tx => {
    for (const name of ['long1', 'long2']) tx.put('node', name, { ...node(name), tags: [long] })
  })
  const time = '\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z'
  const expected = [
    `^1 ${time} node/a \\d+ bytes$`,
    `^2 ${time} node/a removed, node/n0 \\d+ bytes, .*node/n8 \\d+ bytes, and 6 more$`,
    `^3 ${time} node-status/n1 25 bytes$`,
    `^4 ${time} node-status/n1 \\+\\d+ bytes$`,
    `^5 ${time} node-status/n1 removed$`,
    `^6 ${time} \\(a part of change 6\\) node/long1 6\\d+ bytes$`,
    `^7 ${time} \\(the end of change 6\\) node/long2 6\\d+ bytes$`
  ].map(line => new RegExp(line))
  const last = /^7 records, \d+ bytes$/
  const running = shown()
  t.match(running, { isWhole: true, lines: [...expected, last] })
  t.equal(running.lines.length, 8)
  files.before = () => {
    throw systemError('EIO')
  }
  await store.close()
  t.strictSame(shown(), running)
  const segment = join(state, 'log/000000000001.wal')
  const bytes = readFileSync(segment)
  const at = bytes.indexOf('["node-status"')
  bytes.writeUInt8(bytes.readUInt8(at + 3) ^ 1, at + 3)
  writeFileSync(segment, bytes)
  const damaged = shown()
  t.match(damaged, { isWhole: false })
  t.match(damaged.lines, [
    ...expected.slice(0, 2),
    /000000000001\.wal: damaged log, byte \d+: a record is damaged/
  ])
})
