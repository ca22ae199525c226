import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import * as oauth from 'oauth4webapi'
import type { Login } from '../auth/grant.js'
import { Semaphore } from '../base/concurrency.js'
import { forbidden, ServiceError, tryLater, unauthorized, unavailable } from '../base/errors.js'
import { isObject, type JsonValue, jsonObject } from '../base/json.js'
import { clip, escapeControls, type Log } from '../base/log.js'
import { RateLimit, ThrottledWarning } from '../base/rate-limit.js'
import { clientNetworkOf, isThisMachine } from '../base/request-source.js'
import { certificateFault, type Trust, trustFor } from '../client/certificates.js'
import { NoResponseError, requestWhole } from '../client/request.js'
import type { Config } from '../config/types.js'
import { readPassword, readRegularFile } from '../disk/file.js'
import { grantBy, isUserName } from './roles.js'

const CONNECT_MS = 4000
const ANSWER_MS = 8000
/** Bytes of one answer of the provider. */
const MOST_BYTES = 512 * 1024
/** Time for a person to log in at the provider. */
const LOGIN_MS = 600_000
/** Age at which the description of the provider is asked for again; the library renews its keys. */
const KNOWN_MS = 3_600_000
/** A provider that has just failed is left alone: others can log in meanwhile. */
const REST_MS = 5000
/** Log-ins that ask the provider at once, and those that wait. */
const AT_ONCE = 8
const MOST_WAITING = 100
/** Log-ins of a network in a minute: each lets svcd ask the provider, and anybody may begin one. */
const RATE = { burst: 60, refill: 60, everyMs: 60_000 }
const MOST_USED = 10_000
const POLL_S = 5

type OidcSettings = Config['auth'] & { readonly pages: readonly string[] }

interface OidcOptions {
  readonly settings: OidcSettings
  /** Equal on all controllers, so that each can finish what another one has begun. */
  readonly key: Uint8Array
  readonly log: Log
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Monotonic milliseconds. */
  readonly ticks: () => number
}

/** The provider, as it says of itself, and how svcd asks it. */
interface Provider {
  readonly server: oauth.AuthorizationServer
  readonly auth: oauth.ClientAuth
  readonly options: ReturnType<typeof requestOptions>
  readonly keys: oauth.JWKSCacheInput
  readonly untilMs: number
}

/** The provider does not do what it should; the message begins with a key of the ini. */
class ProviderFault extends Error {}

/**
 * Logs people in by an OpenID provider (rules 5.11): by code flow with PKCE for the page, by device flow for
 * svcctl. Nothing is kept of a log-in that has begun: all is in its state, which controllers alone can make.
 */
export class Oidc {
  readonly #warning: ThrottledWarning
  readonly #requests = new Semaphore(AT_ONCE)
  readonly #rate: RateLimit
  /** States that were handed in: the provider takes a code once, and so does svcd. */
  readonly #used = new LRUCache<string, true>({ max: MOST_USED })
  #provider: Promise<Provider> | undefined
  #restUntil = 0

  constructor(private readonly o: OidcOptions) {
    this.#warning = new ThrottledWarning(o.log)
    this.#rate = new RateLimit(RATE, o.ticks)
  }

  /** The name on the button. */
  get name(): string {
    return this.o.settings.oidc_name
  }

  /**
   * Returns the URL of the provider for a page of this origin, and a secret that stays in the browser: only
   * that browser can finish the log-in. Throws ServiceError 403 for another origin, else as `finish`.
   */
  async begin(page: string, address: string): Promise<{ readonly url: string; readonly secret: string }> {
    const { pages, oidc_client_id, oidc_scopes } = this.o.settings
    if (!pages.includes(page))
      throw forbidden(
        `the page was opened at ${page}, and log-ins by ${this.name} begin at ${pages.join(', ')}; ` +
          'open one of these, or name this one in [auth] oidc_url',
        'browser-refused'
      )
    return this.#asking(address, async ({ server }) => {
      const secret = randomBytes(32).toString('base64url')
      const state = this.#seal('login', [this.o.now(), digest(secret), page])
      const url = endpoint(server.authorization_endpoint)
      const words = {
        ...{ client_id: oidc_client_id, response_type: 'code', scope: oidc_scopes, redirect_uri: `${page}/` },
        ...{ state, nonce: this.#derived('nonce', state), code_challenge_method: 'S256' },
        code_challenge: await oauth.calculatePKCECodeChallenge(this.#derived('verifier', state))
      }
      for (const [word, value] of Object.entries(words)) url.searchParams.set(word, value)
      return { url: url.href, secret }
    })
  }

  /**
   * Finishes a log-in with what the provider gave the browser in the query of the page. Throws ServiceError
   * 401 for one that was not begun by this browser, is over, was finished already or is refused, 403 without
   * a role, 503 if the provider does not answer.
   */
  async finish(query: string, secret: string, address: string): Promise<Login> {
    const given = new URLSearchParams(query)
    const state = given.get('state') ?? ''
    const [begunAt, binding, page] = this.#opened('login', state)
    const isFit = digest(secret) === binding && !this.#isOver(Number(begunAt) + LOGIN_MS)
    return this.#asking(address, async provider => {
      // Looked up after the wait for the provider, so that of two equal requests one is refused.
      if (!isFit || this.#used.has(state))
        throw refused('the log-in is over, or was begun in another window: begin a new one')
      this.#used.set(state, true)
      const { server, auth, options } = provider
      const client = this.#client
      const params = oauth.validateAuthResponse(server, client, given, state)
      const proof = [params, `${page}/`, this.#derived('verifier', state)] as const
      const answer = await oauth.authorizationCodeGrantRequest(server, client, auth, ...proof, options)
      const expected = { expectedNonce: this.#derived('nonce', state), requireIdToken: true }
      const tokens = await oauth.processAuthorizationCodeResponse(server, client, answer, expected)
      return this.#login(provider, answer, tokens)
    })
  }

  /** Begins a log-in by device flow; times in seconds, `device` is for `finishDevice`. Throws as `finish`. */
  async beginDevice(address: string) {
    return this.#asking(address, async ({ server, auth, options }) => {
      const client = this.#client
      if (!server.device_authorization_endpoint)
        throw refused(`${this.name} has no log-in by device: log in on the page, or as a user of the ini`)
      const scope = this.o.settings.oidc_scopes
      const answer = await oauth.deviceAuthorizationRequest(server, client, auth, { scope }, options)
      const given = await oauth.processDeviceAuthorizationResponse(server, client, answer)
      const { device_code, user_code, verification_uri, verification_uri_complete: whole } = given
      const expires_in = Math.min(given.expires_in, LOGIN_MS / 1000)
      return {
        device: this.#seal('device', [this.o.now() + expires_in * 1000, device_code]),
        ...{ user_code, verification_uri: endpoint(verification_uri).href, expires_in },
        ...(whole === undefined ? {} : { verification_uri_complete: endpoint(whole).href }),
        interval: given.interval ?? POLL_S
      }
    })
  }

  /** Returns the login; `pending` before the person agrees, `slow` if asked too often. Throws as `finish`. */
  async finishDevice(device: string, address: string): Promise<Login | 'pending' | 'slow'> {
    const [untilMs, code] = this.#opened('device', device)
    if (this.#isOver(Number(untilMs))) throw refused('the log-in is over: begin a new one')
    return this.#asking(address, async provider => {
      const { server, auth, options } = provider
      const client = this.#client
      const answer = await oauth.deviceCodeGrantRequest(server, client, auth, String(code), options)
      try {
        const tokens = await oauth.processDeviceCodeResponse(server, client, answer)
        return await this.#login(provider, answer, tokens)
      } catch (error) {
        const said = error instanceof oauth.ResponseBodyError ? error.error : ''
        if (said === 'authorization_pending') return 'pending'
        if (said === 'slow_down') return 'slow'
        throw error
      }
    })
  }

  /** Returns why the provider cannot be asked, beginning with a key of the ini; undefined if it can. */
  async fault(): Promise<string | undefined> {
    return this.#discover().then(
      () => undefined,
      ({ message }: Error) => message
    )
  }

  get #client(): oauth.Client {
    return { client_id: this.o.settings.oidc_client_id, [oauth.clockTolerance]: 30 }
  }

  /** Verifies the ID token of an answer. Throws ServiceError 401 without a user, 403 without a role. */
  async #login(
    { server, options, keys }: Provider,
    answer: Response,
    tokens: oauth.TokenEndpointResponse
  ): Promise<Login> {
    const { oidc_user_claim, oidc_groups_claim, oidc_roles } = this.o.settings
    await oauth.validateApplicationLevelSignature(server, answer, { ...options, [oauth.jwksCache]: keys })
    const own = oauth.getValidatedIdTokenClaims(tokens)
    if (!own) throw refused(`${this.name} gives no ID token: [auth] oidc_scopes has to begin with openid`)
    const lacks = [oidc_user_claim, oidc_groups_claim].some(name => claimOf(own, name) === undefined)
    const client = this.#client
    const asked =
      lacks && server.userinfo_endpoint !== undefined
        ? await oauth.userInfoRequest(server, client, tokens.access_token, options)
        : undefined
    const more = asked ? await oauth.processUserInfoResponse(server, client, own.sub, asked) : {}
    const claim = (name: string) => claimOf(own, name) ?? claimOf(more, name)
    const user = claim(oidc_user_claim)
    if (typeof user !== 'string' || !isUserName(user))
      throw refused(`${this.name} gives no name in the claim ${oidc_user_claim} ([auth] oidc_user_claim)`)
    const groups = new Set([claim(oidc_groups_claim) ?? []].flat())
    const grant = grantBy(oidc_roles, group => groups.has(group))
    if (!grant)
      throw forbidden(
        `user ${user} of ${this.name} has no role here: ` +
          `none of the groups in the claim ${oidc_groups_claim} is in [auth] oidc_roles`,
        'no-role'
      )
    return { user, grant, source: 'oidc' }
  }

  /** Runs a part of a log-in; maps what goes wrong to ServiceErrors. */
  async #asking<T>(address: string, work: (provider: Provider) => Promise<T>): Promise<T> {
    const { log, ticks } = this.o
    if (!this.#rate.take(clientNetworkOf(address)) || this.#requests.waiting(0) >= MOST_WAITING)
      throw tryLater('too many log-ins by the provider are under way; try again in a minute', 60)
    try {
      return await this.#requests.run(clientNetworkOf(address), async () => {
        if (ticks() < this.#restUntil) throw this.#unanswered()
        return await work(await this.#known())
      })
    } catch (error) {
      if (error instanceof ServiceError) throw error
      const reason = error instanceof ProviderFault ? undefined : refusalOf(error)
      if (reason !== undefined) {
        log.info(`a log-in by ${this.name} is refused: ${reason}`)
        throw refused(`${this.name} refuses the log-in (${reason}): begin a new one`)
      }
      const fault = this.#faultOf(error as Error)
      if ((fault.cause ?? error) instanceof NoResponseError) this.#restUntil = ticks() + REST_MS
      this.#provider = undefined
      this.#warning.say(`a log-in fails: ${fault.message}`)
      throw this.#unanswered()
    }
  }

  #unanswered(): ServiceError {
    return unavailable(
      `${this.name} does not answer as it should, others can log in; on the controller, type: svcd check`,
      'directory-unavailable'
    )
  }

  async #known(): Promise<Provider> {
    const provider = await this.#provider
    if (provider && this.o.ticks() < provider.untilMs) return provider
    this.#provider = this.#discover()
    return this.#provider
  }

  /** Asks the provider what it is. Throws ProviderFault. */
  async #discover(): Promise<Provider> {
    const { settings, ticks } = this.o
    const { oidc_issuer, oidc_ca_certificate: file, oidc_client_secret_file: secretFile } = settings
    try {
      const ca = file === '' ? undefined : await readRegularFile(file)
      const secret = secretFile === '' ? undefined : await readPassword(secretFile)
      const options = requestOptions(trustFor(true, ca))
      const issuer = new URL(oidc_issuer)
      const answer = await oauth.discoveryRequest(issuer, options)
      const server = await oauth.processDiscoveryResponse(issuer, answer)
      const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic']
      const isBasic = methods.includes('client_secret_basic')
      const by = isBasic ? oauth.ClientSecretBasic : oauth.ClientSecretPost
      const auth = secret === undefined ? oauth.None() : by(secret)
      return { server, auth, options, keys: {}, untilMs: ticks() + KNOWN_MS }
    } catch (error) {
      throw this.#faultOf(error as Error)
    }
  }

  #faultOf(error: Error): ProviderFault {
    if (error instanceof ProviderFault) return error
    const { oidc_issuer, oidc_client_id } = this.o.settings
    const fault = certificateFault((error as NoResponseError).code, 'oidc')
    const said = error instanceof oauth.ResponseBodyError ? error.error : ''
    const isClient = /^(?:invalid|unauthorized)_client$/.test(said)
    if (isClient || error instanceof oauth.WWWAuthenticateChallengeError)
      return new ProviderFault(
        `[auth] oidc_client_id: ${oidc_issuer} refuses ${oidc_client_id}, or oidc_client_secret_file`
      )
    const why = fault ? `${fault.what}; ${fault.wayOut}` : clip(escapeControls(said || error.message), 500)
    return new ProviderFault(`[auth] oidc_issuer: ${oidc_issuer}: ${why}`, { cause: error })
  }

  #isOver(untilMs: number): boolean {
    const leftMs = untilMs - this.o.now()
    // A state from the future: a clock was set back.
    return !(leftMs > 0 && leftMs <= LOGIN_MS + 60_000)
  }

  #derived(purpose: string, text: string): string {
    return createHmac('sha256', this.o.key).update(`${purpose} ${text}`).digest('base64url')
  }

  #seal(purpose: string, content: readonly JsonValue[]): string {
    const text = Buffer.from(JSON.stringify({ content })).toString('base64url')
    return `${text}.${this.#derived(`seal ${purpose}`, text)}`
  }

  /** Opens what `#seal` has made. Throws ServiceError 401 for anything else. */
  #opened(purpose: string, sealed: string): readonly JsonValue[] {
    const [text = '', given = ''] = sealed.split('.')
    const [proof, own] = [Buffer.from(given), Buffer.from(this.#derived(`seal ${purpose}`, text))]
    const isOwn = proof.length === own.length && timingSafeEqual(proof, own)
    const content = isOwn ? jsonObject(Buffer.from(text, 'base64url').toString())?.content : undefined
    if (!Array.isArray(content)) throw refused('svcd has not begun this log-in: begin a new one')
    return content
  }
}

const digest = (text: string) => createHash('sha256').update(text).digest('base64url')

const refused = (message: string) => unauthorized(message, 'login-refused')

/** Returns a claim of this name, or the one that the name is the way to. */
function claimOf(claims: object, name: string): JsonValue | undefined {
  const own = (from: unknown, key: string) =>
    isObject(from as JsonValue) && Object.hasOwn(from as object, key)
      ? (from as Record<string, JsonValue>)[key]
      : undefined
  return own(claims, name) ?? (name.split('.').reduce<unknown>(own, claims) as JsonValue | undefined)
}

/** Returns a URL that svcd or a browser may go to. Throws Error for another one. */
function endpoint(text = ''): URL {
  const url = new URL(text)
  if (url.protocol === 'https:' || (url.protocol === 'http:' && isThisMachine(url))) return url
  throw new Error(`it names ${clip(escapeControls(text), 200)}, which is neither https nor this machine`)
}

/** The options of all requests to the provider: they go through the client of the house. */
function requestOptions(tls: Trust) {
  const limits = { most: MOST_BYTES, connectMs: CONNECT_MS, wholeMs: ANSWER_MS }
  const send = async (url: string, asked: oauth.CustomFetchOptions<string, unknown>): Promise<Response> => {
    const { method, headers } = asked
    const body = asked.body === undefined ? undefined : String(asked.body)
    const answer = await requestWhole({ ...limits, url: endpoint(url), method, headers, body, tls })
    const told = (['content-type', 'www-authenticate'] as const).flatMap(name => {
      const value = answer.headers[name]
      return value === undefined ? [] : [[name, value] as [string, string]]
    })
    const { status } = answer
    const isEmpty = [204, 205, 304].includes(status)
    return new Response(isEmpty ? null : new Uint8Array(answer.body), { status, headers: told })
  }
  // `endpoint` refuses plain http, but for this machine.
  return { [oauth.customFetch]: send, [oauth.allowInsecureRequests]: true }
}

/** Returns why this one log-in is refused; undefined if the provider does not do what it should. */
function refusalOf(error: unknown): string | undefined {
  const ofPerson = /^(?:invalid_grant|access_denied|expired_token|consent_required|login_required)$/
  if (
    error instanceof oauth.AuthorizationResponseError ||
    (error instanceof oauth.ResponseBodyError && ofPerson.test(error.error))
  )
    return clip(escapeControls(`${error.error} ${error.error_description ?? ''}`.trim()), 200)
  const { code, message } = error as oauth.OperationProcessingError
  const isOther = code === oauth.INVALID_RESPONSE || code === oauth.JWT_CLAIM_COMPARISON
  return isOther && error instanceof oauth.OperationProcessingError ? message : undefined
}
