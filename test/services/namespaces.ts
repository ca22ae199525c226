import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { addNamespace, removeNamespace } from '../support/namespaces.js'
import { output } from '../support/programs.js'

/** Two network namespaces with a wire between them: a server's, with 10.142.0.1/24, and a client's. */
export interface Wire {
  readonly server: string
  readonly client: string
  /** Runs a program on the client's side; its standard output. */
  run(...words: string[]): Promise<string>
}

let made = 0

async function namespace(t: Test, side: string): Promise<string> {
  const name = await addNamespace(`${side}${++made}`)
  t.teardown(() => removeNamespace(name))
  return name
}

/** Makes the namespaces; what runs in them is ended, and they are removed, after the test. */
export async function wire(t: Test): Promise<Wire> {
  const [server, client] = [await namespace(t, 'server'), await namespace(t, 'client')]
  const ip = (...words: string[]) => output('ip', words)
  await ip('-n', server, 'link', 'add', 'v0', 'type', 'veth', 'peer', 'name', 'c0', 'netns', client)
  await ip('-n', server, 'address', 'add', '10.142.0.1/24', 'dev', 'v0')
  await ip('-n', server, 'link', 'set', 'v0', 'up')
  await ip('-n', client, 'link', 'set', 'c0', 'up')
  return { server, client, run: (...words) => output('ip', ['netns', 'exec', client, ...words]) }
}

/**
 * A control command, as systemctl is one, for a server in a namespace: `command` runs it in the foreground,
 * and it is there when its log has `ready`; a reload is SIGHUP or the shell words given.
 */
export function controlScript(
  directory: string,
  {
    namespace,
    command,
    ready,
    reload = 'kill -HUP "$(cat pid)"'
  }: { namespace: string; command: string; ready: string; reload?: string }
): string {
  const file = join(directory, 'control')
  writeFileSync(
    file,
    `#!/bin/sh
cd ${directory} || exit 1
PATH=$PATH:/usr/sbin:/sbin
# One that has ended may wait for init to look at it.
running() { test -s pid && grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$(cat pid)/status"; }
start() {
  running && return
  # What the one before it said is not this one's.
  : >server.log
  setsid ip netns exec ${namespace} ${command} </dev/null >server.log 2>&1 &
  echo $! >pid
  for _ in $(seq 200); do
    grep -q '${ready}' server.log && return
    running || break
    sleep 0.05
  done
  cat server.log >&2
  exit 1
}
stop() {
  running || return
  kill "$(cat pid)"
  while running; do sleep 0.02; done
  rm -f server.pid
}
echo "$1" >>asked
case $1 in
start) start ;;
stop) stop ;;
restart) stop; start ;;
reload) running && ${reload} ;;
status) running || { echo "$2 is not running"; exit 3; } ;;
esac
`
  )
  chmodSync(file, 0o755)
  return file
}

/** What a real DHCP client was given: the environment of udhcpc's script, '' for what it was not given. */
export type Lease = Readonly<Record<string, string>>

/** How a machine presents itself: iPXE, firmware of an architecture (option 93), or a plain client. */
export const faces = {
  ipxe: ['-x', '0x4d:69505845', '-x', '0x5d:0000', '-V', 'PXEClient:Arch:00000:UNDI:002001'],
  plain: [],
  bios: ['-x', '0x5d:0000', '-V', 'PXEClient:Arch:00000:UNDI:002001'],
  efi: ['-x', '0x5d:0007', '-V', 'PXEClient:Arch:00007:UNDI:003016'],
  arm: ['-x', '0x5d:000b', '-V', 'PXEClient:Arch:00011:UNDI:003000'],
  http: ['-x', '0x5d:0010', '-V', 'HTTPClient:Arch:00016:UNDI:003001']
} as const

/** Asks for an address with a MAC, and further options of udhcpc; undefined when nobody answers. */
export async function lease(
  { run, client }: Wire,
  directory: string,
  mac: string,
  face: keyof typeof faces,
  more: readonly string[] = []
): Promise<Lease | undefined> {
  const script = join(directory, 'udhcpc.sh')
  mkdirSync(directory, { recursive: true })
  writeFileSync(script, '#!/bin/sh\ntest "$1" = bound && env | sed "s/^/LEASE /"\nexit 0\n')
  chmodSync(script, 0o755)
  await output('ip', ['-n', client, 'link', 'set', 'c0', 'down'])
  await output('ip', ['-n', client, 'link', 'set', 'c0', 'address', mac, 'up'])
  const wanted = ['bootfile', 'ntpsrv', 'dns', 'domain', 'search', 'router', 'staticroutes', 'tftp', '60']
  const options = wanted.flatMap(name => ['-O', name])
  const said = await run(
    ...['busybox', 'udhcpc', '-f', '-i', 'c0', '-n', '-q', '-t', '4', '-T', '1', '-s', script],
    ...options,
    ...faces[face],
    ...more
  ).catch((error: Error) => {
    if (/no lease|failing/.test(error.message)) return ''
    throw error
  })
  const found = [...said.matchAll(/^LEASE (\w+)=(.*)$/gm)].map(([, name, value]) => [name, value])
  return found.length === 0 ? undefined : Object.fromEntries(found)
}
