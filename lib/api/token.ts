import { refuseForeignPage } from '../auth/access.js'
import { type Grant, grantRule, parseGrant } from '../auth/grant.js'
import type { ProgramToken } from '../auth/program-tokens.js'
import { unauthorized } from '../base/errors.js'
import { type FieldType, freeText, integer, ValueError } from '../model/field.js'
import { version } from '../version.js'
import {
  type ApiRequest,
  type ApiRoute,
  actorOf,
  config,
  done,
  isoTime,
  ok,
  type Parts,
  param
} from './context.js'
import { type Listing, listed, listQuery } from './listing.js'
import { bodyOf, deletion, get, post } from './row.js'
import { at, object, orNull, type Schema, standing, string, time } from './schema.js'

/** Takes any text: one that is no user's password is a wrong password (401), not a bad request. */
const credential: FieldType<string> = {
  ...freeText,
  read: value => {
    // Without the value: it may be a password.
    if (typeof value !== 'string') throw new ValueError('must be a string')
    return value
  }
}

const credentials = bodyOf(
  { about: 'token' },
  {
    username: { type: credential, required: true, meaning: 'a user of the ini' },
    // Not marked `secret`: the mask ******** would count as unchanged, but may be somebody's password.
    password: { type: credential, required: true, meaning: 'the password of this user' }
  }
)

const versionFields = { service: string(), api: { type: 'integer' }, commit: string() }
const versionSchema = object(versionFields, Object.keys(versionFields))

/** Token and version (rules 5.1, 6.4, 11.15). */
export function tokenRoutes({ logins, tokens, site }: Parts): ApiRoute[] {
  return [
    post('/token', 'anyone', {
      answers: [201],
      refuses: [401, 403],
      summary: 'A token for a user name and a password',
      body: credentials,
      maxBody: 8192,
      output: object({ token: string() }, ['token']),
      handler: async ({ source, headers }, { username, password }) => {
        refuseForeignPage(headers)
        const login = await logins.login(username, password, source.address)
        if (!login) throw unauthorized('user name or password is wrong', 'wrong-password')
        return { status: 201, body: { token: tokens.issueUser(login) } }
      }
    }),
    get('/version', 'anyone', {
      summary: 'Version of the service and of this interface',
      output: object({ version: versionSchema, controller: standing }, ['version']),
      handler: () => ok({ version, ...(site ? { controller: site.status } : {}) })
    })
  ]
}

const grant: FieldType<Grant> = {
  expected: grantRule,
  json: 'string',
  read: value => parseGrant(freeText.read(value))
}

const request = bodyOf(
  { about: 'token {token}', at: 'config.token.{token}' },
  {
    role: { type: grant, required: true, meaning: 'what the program may do' },
    days: { type: integer(1, 3650), meaning: 'how long it lasts; absent: without an end' }
  }
)

const listing: Listing = {
  title: 'token',
  place: 'config.token.{token}',
  item: object({
    ...{ name: string(), role: string('with the groups that it is limited to'), by: string('who made it') },
    ...{ created: time, ends: orNull(time), used: orNull(time) }
  })
}

function entryOf({ name, role, by, created, ends, used }: ProgramToken) {
  const shown = { name, role, by, created: isoTime(created), ends: isoTime(ends), used: isoTime(used) }
  return { name, values: () => shown }
}

/** Tokens of programs (rules 5.9). */
export function programTokenRoutes({ programs, record }: Parts): ApiRoute[] {
  const nameOf = (asked: ApiRequest) => param(asked, 'token')
  const noted = (asked: ApiRequest, before: object | undefined, after: object | undefined) =>
    record(actorOf(asked), [{ type: 'token', name: nameOf(asked), before, after }], 'change')
  return [
    get('/config/token', 'admin', {
      summary: 'The tokens of programs, without what they are',
      query: listQuery,
      output: at(listing.place, listing.item),
      handler: asked => listed(asked, listing, programs.list().map(entryOf))
    }),
    get('/config/token/{token}', 'admin', {
      summary: 'One token of a program',
      query: listQuery,
      output: at(listing.place, listing.item),
      handler: asked => listed(asked, listing, [entryOf(programs.get(nameOf(asked)))])
    }),
    post('/config/token/{token}', 'login', {
      answers: [201],
      summary: 'Make a token for a program; this answer alone holds it',
      body: request,
      output: object({ ...(at(listing.place, listing.item).properties as Schema), token: string() }),
      handler: async (asked, { role, days }) => {
        const { token, text } = await programs.create(nameOf(asked), role, days, actorOf(asked).who)
        const { name, values } = entryOf(token)
        await noted(asked, undefined, values())
        return { status: 201, body: { ...config('token', { [name]: values() }), token: text } }
      }
    }),
    ...deletion('/config/token/{token}', 'login', {
      summary: 'Revoke the token of a program, at once',
      handler: async asked => {
        const { values } = entryOf(await programs.revoke(nameOf(asked)))
        await noted(asked, values(), undefined)
        return done(204, '')
      }
    })
  ]
}
