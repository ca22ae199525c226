import { generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { Test } from 'tap'
import { freePort } from './free-port.js'

/** People of the provider and their groups. */
const groupsOf: Readonly<Record<string, readonly string[]>> = {
  alice: ['svcd-admins', 'staff'],
  bob: ['gpu'],
  dave: ['staff']
}

/** A real OpenID provider on loopback, whose log-in takes any password. */
export interface RealProvider {
  readonly issuer: string
  /** Requests by path, in their order. */
  readonly asked: string[]
  /** Answers in the place of the provider, while it is set. */
  instead: RequestListener | undefined
  settings(): string[]
  /** Goes from a URL of the provider on as a browser of this person does; returns the URL that leaves it. */
  browse(url: string, person: string, form?: Readonly<Record<string, string>>): Promise<URL>
}

/** Starts a provider. `pages`: origins of the page; `tls`: it listens with TLS. */
export async function startProvider(
  t: Test,
  pages: readonly string[],
  secretFile: string,
  tls?: { readonly certificate: string; readonly key: string }
): Promise<RealProvider> {
  const { default: Provider } = await import('oidc-provider')
  const port = await freePort()
  const issuer = `http${tls ? 's' : ''}://127.0.0.1:${port}`
  const grants = ['authorization_code', 'urn:ietf:params:oauth:grant-type:device_code']
  const client = {
    redirect_uris: pages.map(page => `${page}/`),
    response_types: ['code'],
    grant_types: grants
  }
  const provider = new Provider(issuer, {
    clients: [{ ...client, client_id: 'svcd', client_secret: readFileSync(secretFile, 'utf8').trim() }],
    claims: { openid: ['sub'], profile: ['preferred_username', 'groups'] },
    features: { devInteractions: { enabled: true }, deviceFlow: { enabled: true } },
    pkce: { required: () => true },
    cookies: { keys: ['a key of a test'] },
    jwks: {
      keys: [generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' })]
    },
    ttl: { Interaction: 600, Session: 600, Grant: 600, AccessToken: 600, IdToken: 600, DeviceCode: 600 },
    findAccount: (_: unknown, id: string) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id, groups: groupsOf[id] ?? [] })
    })
  })
  const asked: string[] = []
  const state: { instead: RequestListener | undefined } = { instead: undefined }
  const own = provider.callback()
  const answer: RequestListener = (request, response) => {
    asked.push(`${request.method} ${request.url?.replace(/\?.*/, '')}`)
    ;(state.instead ?? own)(request, response)
  }
  const server = tls
    ? createTlsServer({ cert: readFileSync(tls.certificate), key: readFileSync(tls.key) }, answer)
    : createServer(answer)
  await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return Object.assign(state, {
    ...{ issuer, asked },
    settings: () => [
      `auth.oidc_issuer=${issuer}`,
      'auth.oidc_client_id=svcd',
      `auth.oidc_client_secret_file=${secretFile}`,
      `auth.oidc_url=${pages.join(', ')}`,
      'auth.oidc_name=Example SSO',
      'auth.oidc_roles=admin=svcd-admins | operator:gpu=gpu',
      ...(tls ? [`auth.oidc_ca_certificate=${tls.certificate}`] : [])
    ],
    browse: (url: string, person: string, form?: Readonly<Record<string, string>>) =>
      browse(issuer, url, person, form)
  })
}

/** Follows redirects and fills in forms, with the cookies of one browser. */
async function browse(
  issuer: string,
  start: string,
  person: string,
  first: Readonly<Record<string, string>> = {}
): Promise<URL> {
  const cookies = new Map<string, string>()
  let url = new URL(start)
  let body: URLSearchParams | undefined
  for (let step = 0; step < 20; step++) {
    if (url.origin !== issuer) return url
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie },
      ...(body ? { method: 'POST', body } : {})
    })
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      cookies.set(name, value)
    }
    const to = response.headers.get('location')
    const page = await response.text()
    body = undefined
    if (to !== null) {
      url = new URL(to, url)
      continue
    }
    const [, action] = /<form[^>]*action="([^"]+)"/.exec(page) ?? []
    if (action === undefined) return url
    const hidden = [...page.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)]
    const given = hidden.map(([, name = '', value = '']) => [name, value] as [string, string])
    body = new URLSearchParams([...given, ...Object.entries({ login: person, password: 'any', ...first })])
    url = new URL(action, url)
  }
  throw new Error(`${url.href} leads nowhere`)
}
