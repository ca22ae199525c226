import { randomBytes } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Course, run } from '../program/program.js'
import { type HelperSettings, ownerOf, wordsAs } from './directories.js'

/** The directory of a rehearsal, in the state directory. */
export const REHEARSAL = 'rehearsal'

/**
 * Everything that is in the network namespace: loopback with the addresses of the controller. What comes from
 * the machine to loopback, or to these addresses, comes from the node's address, as on its own network.
 */
export const INSIDE = `set -e
node=$1 controller=$2
shift 2
ip link set lo up
ip address add "$node/32" dev lo
[ "$node" = "$controller" ] || ip address add "$controller/32" dev lo
for to in 127.0.0.0/8 127.0.0.1; do ip route replace local "$to" dev lo src "$node" table local; done
ip route replace local "$controller" dev lo src "$node" table local
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start 2>/dev/null || :
exec nice -n 10 "$@"
`

const main = fileURLToPath(new URL('../main.js', import.meta.url))

/**
 * Runs the rehearsal that svcd has put into its state directory, in a network namespace that leads nowhere,
 * as the user of svcd: root, where svcd is root. All of it ends with this call. Throws Error on failure.
 */
export async function runRehearsal(
  places: HelperSettings,
  { node, controller }: { readonly node: string; readonly controller: string },
  { signal, timeLimitMs, line }: Course
): Promise<void> {
  const { state, byRoot, sshUnit } = places
  const isRoot = process.getuid?.() === 0
  const owner = await ownerOf(places)
  const kvm = await stat('/dev/kvm').catch(() => undefined)
  const asOwner = isRoot && owner.uid !== 0 ? wordsAs(owner, kvm?.gid) : []
  const self = [process.execPath, ...process.execArgv, main, 'rehearse', join(state, REHEARSAL)]
  const words = ['sh', '-c', INSIDE, 'sh', node, controller, ...asOwner, ...self]
  // The unit of the helper lets its own processes use no network, and no device: this one has a drop-in.
  const unit = `svcd-rehearsal-${randomBytes(8).toString('hex')}.service`
  const asUnit = ['--quiet', '--collect', '--wait', '--pipe', `--unit=${unit}`, '-p', 'PrivateNetwork=yes']
  const apart = ['--net', '--pid', '--fork', '--kill-child', ...(isRoot ? [] : ['--user', '--map-root-user'])]
  const hasUnit = sshUnit !== undefined && !byRoot
  const [program, options] = hasUnit ? ['systemd-run', asUnit] : ['unshare', apart]
  try {
    await run(program, [...options, '--', ...words], { signal, timeLimitMs, onLine: line })
  } finally {
    if (hasUnit) await run('systemctl', ['stop', unit], { timeLimitMs: 30_000 }).catch(() => {})
  }
}
