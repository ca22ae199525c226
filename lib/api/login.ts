import { refuseForeignPage } from '../auth/access.js'
import { notFound } from '../base/errors.js'
import type { Oidc } from '../identity/oidc.js'
import { freeText } from '../model/field.js'
import { type ApiRoute, ok, type Parts } from './context.js'
import { bodyOf, get, post } from './row.js'
import { object, string } from './schema.js'

const text = (meaning: string) => ({ type: freeText, required: true, meaning }) as const
const about = 'log-in'

/** Log-ins by an OpenID provider (rules 5.11); `tokenRoutes` has those by password. */
export function loginRoutes({ oidc, tokens }: Parts): ApiRoute[] {
  const provider = (): Oidc => {
    if (oidc) return oidc
    throw notFound('there is no log-in by a provider here: [auth] oidc_issuer is empty', 'no-provider')
  }
  const common = { refuses: [401, 403, 404], maxBody: 16_384 } as const
  const token = object({ token: string() }, ['token'])
  return [
    get('/auth', 'anyone', {
      summary: 'How people log in: the name of the OpenID provider, if any',
      output: object({ oidc: { type: ['string', 'null'] } }, ['oidc']),
      handler: () => ok({ oidc: oidc?.name ?? null })
    }),
    post('/auth/oidc', 'anyone', {
      ...common,
      summary: 'Begins a log-in by the OpenID provider for the page of the Origin',
      output: object({ url: string('where the browser goes on'), secret: string('for /auth/oidc/finish') }),
      handler: async ({ headers, source }) => {
        refuseForeignPage(headers)
        return ok(await provider().begin(headers.origin ?? '', source.address))
      }
    }),
    post('/auth/oidc/finish', 'anyone', {
      ...common,
      answers: [201],
      summary: 'A token for what the OpenID provider gave the browser',
      body: bodyOf(
        { about },
        { query: text('query of the page, as the provider set it'), secret: text('secret of the browser') }
      ),
      output: token,
      handler: async ({ headers, source }, { query, secret }) => {
        refuseForeignPage(headers)
        const login = await provider().finish(query, secret, source.address)
        return { status: 201, body: { token: tokens.issueUser(login) } }
      }
    }),
    post('/auth/device', 'anyone', {
      ...common,
      summary: 'Begins a log-in by the OpenID provider without a browser: where to type which code',
      output: object({
        ...{ device: string('for /auth/device/finish'), user_code: string(), verification_uri: string() },
        ...{ verification_uri_complete: string('with the code in it') },
        ...{ interval: { type: 'integer' }, expires_in: { type: 'integer' } }
      }),
      handler: async ({ headers, source }) => {
        refuseForeignPage(headers)
        return ok(await provider().beginDevice(source.address))
      }
    }),
    post('/auth/device/finish', 'anyone', {
      ...common,
      answers: [200, 201],
      summary: 'A token for a log-in by /auth/device; 200 while nobody has agreed yet',
      body: bodyOf({ about }, { device: text('device of the answer of /auth/device') }),
      output: object({ token: string(), message: string(), slow: { type: 'boolean' } }),
      handler: async ({ headers, source }, { device }) => {
        refuseForeignPage(headers)
        const login = await provider().finishDevice(device, source.address)
        if (typeof login === 'string')
          return ok({ message: 'nobody has agreed yet: ask again', slow: login === 'slow' })
        return { status: 201, body: { token: tokens.issueUser(login) } }
      }
    })
  ]
}
