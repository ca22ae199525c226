import { join } from 'node:path'
import t from 'tap'
import { builtTree, start } from '../support/built-tree.js'

const tree = builtTree(t.testdir())

/** `svcd passwd alice` on a terminal of its own; both streams are the terminal. */
function onTerminal() {
  const spawnHere = 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))'
  const running = start('python3', ['-c', spawnHere, join(tree, 'bin', 'svcd'), 'passwd', 'alice'])
  const type = (keys: string | Uint8Array) => running.process.stdin?.write(keys)
  return { ...running, type }
}

t.test('asks twice, without echo, with the keys of a line editor', async t => {
  const { says, type, ended } = onTerminal()
  await says('Password of alice: ')
  type('wrong\x15secrex\x7fté\x7f1\r')
  await says('The same again: ')
  type('secret1\r')
  await says('$scrypt$')
  const { code, stdout } = await ended
  t.equal(code, 0)
  t.match(stdout, /alice = admin \$scrypt\$\S+\r\n/)
  t.notMatch(stdout, /secre|wrong/)
})

t.test('both typed ahead', async t => {
  const { says, type, ended } = onTerminal()
  await says('Password of alice: ')
  type('secret\rsecret\r')
  await says('$scrypt$')
  t.equal((await ended).code, 0)
})

t.test('different ones are refused, Ctrl-C stops', async t => {
  const differ = onTerminal()
  await differ.says('Password of alice: ')
  differ.type('one\r')
  await differ.says('The same again: ')
  differ.type('two\r')
  t.match(await differ.ended, { code: 1, stdout: /the two passwords differ/ })
  const stopped = onTerminal()
  await stopped.says('Password of alice: ')
  stopped.type('half\x03')
  t.match(await stopped.ended, { code: 1, stdout: /svcd: interrupted/ })
})
