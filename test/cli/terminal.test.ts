import { join } from 'node:path'
import t from 'tap'
import { builtTree, onTerminal } from '../support/built-tree.js'

const tree = builtTree(t.testdir())

const askPassword = () => onTerminal(join(tree, 'bin', 'svcd'), 'passwd', 'alice')

t.test('asks twice, without echo, with the keys of a line editor', async t => {
  const { says, type, ended } = askPassword()
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
  const { says, type, ended } = askPassword()
  await says('Password of alice: ')
  type('secret\rsecret\r')
  await says('$scrypt$')
  t.equal((await ended).code, 0)
})

t.test('different ones are refused, Ctrl-C stops', async t => {
  const differ = askPassword()
  await differ.says('Password of alice: ')
  differ.type('one\r')
  await differ.says('The same again: ')
  differ.type('two\r')
  t.match(await differ.ended, { code: 1, stdout: /the two passwords differ/ })
  const stopped = askPassword()
  await stopped.says('Password of alice: ')
  stopped.type('half\x03')
  t.match(await stopped.ended, { code: 1, stdout: /svcd: interrupted/ })
})
