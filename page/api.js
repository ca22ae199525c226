/** The token is kept for this tab only, and is never part of a URL. */
const place = 'svcd-token'
let token = sessionStorage.getItem(place) ?? ''

/** A refusal by the controller. */
export class Refused extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

/** Called when the token is no longer valid. */
let onVoid = () => {}
export const whenVoid = listener => {
  onVoid = listener
}

export const isLoggedIn = () => token !== ''

export function forget() {
  token = ''
  sessionStorage.removeItem(place)
}

/** Throws Refused, also if the controller cannot be reached (status 0). */
export async function logIn(username, password) {
  const { token: given } = await ask('POST', '/token', { username, password })
  keep(given)
}

function keep(given) {
  token = given
  sessionStorage.setItem(place, token)
}

/** The secret of a log-in at the provider, and where the page was, while the provider has this tab. */
const placeOfLogin = 'svcd-login'

/** Goes to the provider, which comes back to this page. Throws Refused. */
export async function goToProvider() {
  const { url, secret } = await ask('POST', '/auth/oidc')
  sessionStorage.setItem(placeOfLogin, JSON.stringify({ secret, hash: location.hash }))
  location.assign(url)
}

/** Finishes a log-in if the provider has come back; what it gave leaves the address first. Throws Refused. */
export async function comeFromProvider() {
  const query = location.search.slice(1)
  if (!new URLSearchParams(query).has('state')) return
  const { secret = '', hash = '' } = parsed(sessionStorage.getItem(placeOfLogin) ?? '{}') ?? {}
  sessionStorage.removeItem(placeOfLogin)
  history.replaceState(null, '', `/${hash}`)
  keep((await ask('POST', '/auth/oidc/finish', { query, secret })).token)
}

/** GETs a path; returns the parsed body, undefined for none. Throws Refused. */
export const read = path => ask('GET', path)
/** GETs a path; returns the parsed body and the entity tag of what was read. Throws Refused. */
export async function readTagged(path) {
  const response = await send(path)
  return { body: parsed(await response.text()), etag: response.headers.get('etag') }
}
/** POSTs a value as JSON, and a text as it is; `etag` is what it must fit. Throws Refused. */
export const post = (path, body, etag) => ask('POST', path, body, etag ? { 'If-Match': etag } : {})

/** POSTs what becomes a job; returns its ID at once. Throws Refused. */
export const begin = async (path, body) =>
  (await ask('POST', path, body, { Prefer: 'respond-async' })).request_id

/** Waits for the end of a job; returns its record. A controller that is away is asked again. Throws Refused. */
export async function endOf(id) {
  for (;;) {
    await new Promise(resolve => setTimeout(resolve, 3000))
    try {
      const job = (await read(`/monitor/request/${id}`)).monitor.request[id]
      if (['done', 'failed'].includes(job.state)) return job
    } catch (error) {
      if (![0, 503].includes(error.status)) throw error
    }
  }
}

async function ask(method, path, body, headers) {
  const sent = typeof body === 'string' ? body : JSON.stringify(body)
  const response = await send(path, { method, body: sent, headers })
  const text = await response.text()
  return text === '' ? undefined : parsed(text)
}

/** Returns the services. A service that is not well is not an error of the request. */
export async function readServices() {
  try {
    return (await read('/monitor/status')).monitor.service
  } catch (error) {
    if (error.services) return error.services
    throw error
  }
}

/** Sends a request; returns the response unread. Throws Refused. */
export async function send(path, { headers = {}, ...options } = {}) {
  const sent = token
  let response
  try {
    response = await fetch(path, {
      ...options,
      cache: 'no-store',
      credentials: 'omit',
      headers: { ...headers, ...(sent === '' ? {} : { 'x-access-tokens': sent }) }
    })
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new Refused(0, 'The controller does not answer.')
  }
  if (response.ok) return response
  const body = parsed(await response.text().catch(() => ''))
  if (response.status === 401 && sent !== '' && sent === token) {
    forget()
    onVoid()
  }
  const refused = new Refused(response.status, body?.message ?? `The controller answered ${response.status}.`)
  refused.services = body?.monitor?.service
  throw refused
}

function parsed(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** A stream that is silent for this long is dead: the controller sends something every 15 s. */
const silentMs = 40_000

/**
 * Follows /monitor/events from an ID on, and reconnects after each break, until `signal` is aborted. `told`
 * gets lists of events as they arrive; `state` gets whether the stream is connected.
 */
export async function follow(lastId, { told, state, signal }) {
  let id = lastId
  for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 15_000)) {
    const stop = new AbortController()
    const abort = () => stop.abort()
    signal.addEventListener('abort', abort)
    let watchdog = setTimeout(abort, silentMs)
    try {
      const response = await send('/monitor/events', {
        signal: stop.signal,
        headers: { 'Last-Event-ID': id }
      })
      state(true)
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
      let text = ''
      for (;;) {
        const { value, done } = await reader.read()
        if (done) break
        clearTimeout(watchdog)
        watchdog = setTimeout(abort, silentMs)
        pause = 500
        text += value
        const end = text.lastIndexOf('\n\n') + 2
        if (end < 2) continue
        const events = parse(text.slice(0, end))
        text = text.slice(end)
        if (events.length === 0) continue
        id = events.at(-1).id
        told(events)
      }
    } catch (error) {
      if (error.status === 401 || error.status === 403) return
    } finally {
      clearTimeout(watchdog)
      signal.removeEventListener('abort', abort)
      stop.abort()
    }
    if (signal.aborted) return
    state(false)
    // Random, so that pages that lost their controller together do not return together.
    await new Promise(resolve => setTimeout(resolve, pause * (0.5 + Math.random())))
  }
}

function parse(text) {
  const events = []
  for (const block of text.split('\n\n')) {
    const event = {}
    for (const line of block.split('\n')) {
      const colon = line.indexOf(': ')
      if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2)
    }
    if (event.data !== undefined)
      events.push({ id: event.id, kind: event.event, data: JSON.parse(event.data) })
  }
  return events
}
