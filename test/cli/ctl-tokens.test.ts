import t from 'tap'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { svcctlFor } from '../support/svcctl.js'

const c = await Controller.start(t)
const env = svcctlFor(scratch(t), c)
const svcctl = (...words: string[]) => start('svcctl', words, { input: '', env }).ended

// rules 5.9
t.test('svcctl makes, lists and revokes tokens of programs', async t => {
  const made = await svcctl('token', 'create', 'prometheus', '--role', 'viewer')
  t.match(made, { code: 0, stdout: /^svcd_[\w-]{43}\n$/, stderr: /token prometheus is shown this once/ })
  const token = made.stdout.trim()
  t.equal((await c.get('/metrics', { token })).status, 200)
  const days = await svcctl(
    'token',
    'create',
    'slurm',
    '--role=operator:gpu,compute',
    '--days=30',
    '-o',
    'json'
  )
  t.match(JSON.parse(days.stdout), { token: /^svcd_/, config: { token: { slurm: { ends: /^20/ } } } })
  const listed = await svcctl('token', 'list')
  t.match(listed.stdout, /^prometheus +viewer +user admin [\s\S]*^slurm +operator:compute,gpu/m)
  t.notMatch(listed.stdout, token)
  t.match(await svcctl('token', 'revoke', 'prometheus'), { code: 0, stdout: 'token prometheus revoked\n' })
  t.equal((await c.get('/metrics', { token })).status, 401)
  t.match(await svcctl('token'), { code: 0, stdout: `${c.token}\n` })
})

t.test('what is wrong is said with what to type', async t => {
  const wrong: [string[], number, RegExp][] = [
    [['create', 'x'], 2, /usage: svcctl token create NAME --role viewer/],
    [['create', '--role', 'viewer'], 2, /usage: svcctl token create NAME/],
    [['create', 'x', '--role', 'root'], 1, /token x: field "role" must be admin, operator or viewer/],
    [['create', 'x', '--role', 'viewer', '--days', 'ten'], 2, /--days must be a number of days/],
    [['create', 'x', '--role', 'viewer', '--days', '0'], 1, /"days" must be an integer from 1 to 3650/],
    [['create', 'slurm', '--role', 'viewer'], 1, /token slurm exists already: revoke it first/],
    [['create', '__proto__', '--role', 'viewer'], 1, /a name must be/],
    [['revoke', 'nobody'], 1, /there is no token nobody/],
    [['list', '--role', 'viewer'], 2, /token list takes no --role/]
  ]
  for (const [words, code, says] of wrong) {
    const ended = await svcctl('token', ...words)
    t.match(ended, { code, stdout: '', stderr: says }, words.join(' '))
  }
  // Elsewhere --role=x is role=x, as for each field.
  t.match(await svcctl('node', 'set', 'n1', '--role=x'), { code: 2, stderr: /no field role/ })
})
