import { readdirSync, readFileSync } from 'node:fs'
import { defaultLimits, LIMITS, type Limits } from './limits.js'

const { reservedPart, reservedMin, reservedMax, refusalPart, filePart, lentPart } = LIMITS

/** Returns the limits of the ini, reduced to the descriptors; all files of the parts are open by now. */
export function connectionLimits(http: {
  readonly max_downloads: number
  readonly max_connections_per_address: number
}): Partial<Limits> {
  const { connections, downloads, crowded } = descriptorShare()
  return {
    ...{ connections, crowded },
    connectionsPerAddress: http.max_connections_per_address,
    downloads: Math.min(http.max_downloads, downloads),
    // Each forward takes a second descriptor.
    forwards: Math.min(defaultLimits.forwards, Math.max(LIMITS.forwardsMin, Math.floor(downloads / 2)))
  }
}

/** The limits that depend on the descriptors of the process. */
type Share = Pick<Limits, 'connections' | 'downloads' | 'crowded'>

/** Divides the descriptors left after start-up (rules 2.15). Infinity if there is no known limit. */
function descriptorShare(): Share {
  try {
    const limit = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
    if (limit !== undefined) return share(Number(limit), readdirSync('/proc/self/fd').length)
  } catch {
    // Without /proc the limit is unknown.
  }
  return share(Number.POSITIVE_INFINITY, 0)
}

/** `used` of `limit` descriptors are taken. */
export function share(limit: number, used: number): Share {
  const reserve = Math.max(reservedMin, Math.min(Math.floor(limit / reservedPart), reservedMax))
  const left = Math.max(16, limit - used - reserve)
  const kept = Number.isFinite(limit) ? Math.max(0, limit - used - left) : 0
  const refused = Number.isFinite(left) ? Math.floor(left / refusalPart) : 0
  return {
    connections: left - refused,
    downloads: Math.floor(left / filePart),
    crowded: refused + Math.floor(kept / lentPart)
  }
}
