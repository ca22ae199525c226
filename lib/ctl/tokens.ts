import { makeChange } from './change.js'
import { listOptions, type Verbs } from './session.js'
import { clean, wrongUsage } from './terminal.js'

const pathOf = (name: string) => `/config/token/${encodeURIComponent(name)}`

/** Tokens of programs (rules 5.9). */
export const tokenVerbs: Verbs<string> = {
  list: {
    operands: '',
    alias: 'ls',
    summary: 'the tokens of programs: role, end, last use',
    options: listOptions,
    run: session => session.rendered('/config/token', {})
  },
  create: {
    operands: 'NAME',
    alias: 'add',
    summary: 'make a token for a program, and print it this once; --role ROLE, and --days N for an end',
    options: ['output', 'role', 'days'],
    async run(session, _type, [name = '']) {
      const { role, days } = session.options
      if (role === undefined)
        throw wrongUsage(
          'usage: svcctl token create NAME --role viewer|operator|admin[:GROUP,...] [--days N]'
        )
      if (days !== undefined && !/^\d{1,4}$/.test(days)) throw wrongUsage('--days must be a number of days')
      const body = { role, ...(days === undefined ? {} : { days: Number(days) }) }
      const answer = await session.controller.json('POST', pathOf(name), {}, body)
      if (session.format === 'json') return session.json(answer)
      await session.lines([clean(String(answer.token))])
      session.terminal.err(
        clean(`token ${name} is shown this once: keep it in a file of mode 0600`).concat('\n')
      )
    }
  },
  revoke: {
    operands: 'NAME',
    alias: 'rm',
    summary: 'make the token of a program void at once',
    options: ['output'],
    run: (session, _type, [name = '']) =>
      makeChange(session, `${pathOf(name)}/_delete`, undefined, `token ${name} revoked`)
  }
}
