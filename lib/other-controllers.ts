import type { IncomingMessage } from 'node:http'
import type { Parts } from './api/context.js'
import { copyRoutes } from './api/copies.js'
import { writerFor } from './api/standby.js'
import type { Caller } from './auth/access.js'
import { CopyProofs } from './auth/copy-proofs.js'
import { ForwardedRequests } from './auth/forwarded.js'
import type { Tokens } from './auth/tokens.js'
import { isPlain } from './config/reachability.js'
import type { Config } from './config/types.js'
import type { RequestHead, Route } from './http/route.js'
import { Checksums } from './image/copies/checksums.js'
import { Copies, type CopiesOptions } from './image/copies/copies.js'
import type { Log } from './log.js'
import type { ClusterStore } from './model/view.js'
import { SharedServices } from './services/shared.js'
import type { Etcd } from './store/etcd/medium.js'
import { openEtcd } from './store/etcd/open.js'
import type { Files } from './store/files/medium.js'
import type { Controller, SharedMedium } from './store/medium.js'

// What the daemon is made of where several controllers share the objects. It is loaded there alone.

/** Objects in etcd; all else of the state stays in its directory, which is held by this daemon as well. */
export async function openShared(
  local: Files,
  config: Config,
  log: (level: 'warn' | 'info', message: string) => void
): Promise<Etcd> {
  await local.lock()
  return openEtcd(config.store, { log, url: urlOf(config) })
}

/** What controllers on this etcd agree on for DHCP and DNS. */
export function sharedServices(
  etcd: Etcd,
  { controller }: Config,
  log: Log,
  now: () => number
): Promise<SharedServices> {
  return SharedServices.open(memory => etcd.records.open('services', memory), {
    self: controller,
    others: () => etcd.others,
    log,
    now
  })
}

/** Where other controllers reach this one. */
const urlOf = ({ http, store }: Config) => store.url || http.url

/**
 * The files of images that this controller fetches from those that share its objects, and the routes by which it gives
 * them its own.
 */
export async function fileCopies(
  parts: Pick<Parts, 'config' | 'model' | 'images' | 'tokens'> &
    Pick<CopiesOptions, 'log' | 'ticks'> & { readonly now: () => number; readonly store: ClusterStore },
  shared: SharedMedium
) {
  const { config, model, images, tokens, store, now, log, ticks } = parts
  const proofs = new CopyProofs(tokens.keyFor('files that controllers copy'), now)
  const checksums = new Checksums(now)
  const copies = await Copies.open({
    ...{ config, model, log, ticks, files: images.files },
    sources: () => sourcesAmong(shared.others, store.writer?.url, urlOf(config)),
    asking: {
      verified: config.node.verify_certificate,
      headersFor: target => proofs.headersFor(target),
      isProved: (asked, told, proof) => proofs.isProved(asked, told, proof)
    },
    arrived: () => images.look()
  })
  store.subscribe(changes => copies.follow(changes))
  return {
    routes: copyRoutes({ model, config }, proofs, checksums),
    get condition() {
      return copies.condition
    },
    isNowhere: (file: string) => copies.isNowhere(file),
    close: () => {
      checksums.close()
      return copies.close()
    }
  }
}

/** The other controllers, the one that writes first: it has what it has packed. A URL that they share with us is ours. */
function sourcesAmong(others: readonly Controller[], writer: string | undefined, own: string) {
  const known = others.flatMap(({ name, url }) => (url === undefined || url === own ? [] : [{ name, url }]))
  if (writer === undefined || writer === own) return known
  const first = known.find(({ url }) => url === writer) ?? { name: 'that writes', url: writer }
  return [first, ...known.filter(other => other !== first)]
}

/** What this controller does not answer while another one writes, and what another one hands on to it. */
export function handingOn(store: ClusterStore, tokens: Tokens, config: Config, now: () => number, log: Log) {
  const requests = new ForwardedRequests(tokens.keyFor('requests that are handed on'), now)
  const url = urlOf(config)
  if (isPlain(url))
    log.warn(
      `other controllers hand requests and tokens on to ${url} in the clear: [store] url = https://... has them encrypted`
    )
  const options = { store, requests, verified: config.node.verify_certificate }
  return {
    handedOnFor: ({ method = '', url = '', headers }: IncomingMessage) =>
      requests.addressIn({ method, target: url, headers }),
    elsewhere: (route: Route<Caller>, head: RequestHead) => writerFor(options, route, head)
  }
}
