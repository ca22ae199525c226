import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Child, startChild } from '../support/child.js'
import { busyboxApplets, NodeRoot, type Shell } from '../support/node-root.js'
import { checkout, output, requirePrograms, requireRoot } from '../support/programs.js'
import { startDhcpd } from '../support/provision-network.js'

/** bash and klibc's sh have curl, dash has GNU wget, ash is all busybox. */
export const shells: readonly Shell[] = ['bash', 'dash', 'ash', 'klibc']

/** What the controller answers; the last one again and again. */
export interface Answer {
  readonly status: number
  readonly body: string
}

export const mac = '52:54:00:15:00:01'
export const url = 'http://10.142.0.1:7050'
/** The kernel arguments (rules 4.2). */
export const kernelArguments: Readonly<Record<string, string>> = {
  root: 'svc',
  'svc.bootproto': 'static',
  'svc.mac': mac,
  'svc.ip': '10.142.0.2/24',
  'svc.url': url,
  'svc.node': 'node001',
  'svc.hostname': 'node001.cluster',
  'svc.service': '0',
  initrd: 'initrd.img'
}

/** An install script that leaves something mounted on /sysroot, after `commands`. */
export const installScript = (commands = '') => `#!/bin/sh
${commands}
mount -t tmpfs image /sysroot
`

// Answers as its argument says and prints each request.
const server = `
const answers = JSON.parse(process.argv[1])
require('node:http').createServer((request, response) => {
  console.log(request.method, request.url)
  const { status, body } = answers.length > 1 ? answers.shift() : answers[0]
  response.writeHead(status, { 'content-length': Buffer.byteLength(body) }).end(body)
}).listen(7050, '10.142.0.1', () => console.log('listening'))
`

/** Where a node's programs come from; the defaults are this system's. */
export interface Programs {
  /** A system's /usr. */
  readonly usr?: string
  /** Name and path below /usr of further programs. */
  readonly further?: Readonly<Record<string, string>>
  /** Names that the node has not. */
  readonly without?: readonly string[]
}

const systemTools = [
  'sed',
  'tr',
  'cat',
  'mkdir',
  'chmod',
  'rm',
  'sleep',
  'tail',
  'mount',
  'env',
  'touch',
  'hostname'
]

const wire = `
ip link add node0 address "$1" type veth peer name controller0
ip address add 10.142.0.1/24 dev controller0
ip link set lo up
ip link set controller0 up
shift
exec "$@"
`

const sandbox = `
root=$1 interpreter=$2 terminal=$3 usr=$4
mount --bind "$usr" "$root/host"
mount --bind ${join(checkout, 'dracut/90svc')} "$root/host-svc"
mount -t proc proc "$root/proc"
mount --bind "$root/cmdline" "$root/proc/cmdline"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs run "$root/run"
touch "$root/dev/null" "$root/dev/console"
mount --bind /dev/null "$root/dev/null"
set -- chroot "$root" /bin/env -i PATH=/bin $interpreter $5
if [ -z "$terminal" ]; then
  exec "$@" </dev/null
fi
export root
export command="$*"
script -qefc 'mount --bind "$(tty)" "$root/dev/console"; exec $command </dev/null' /dev/null <"$root/typed"
`

/**
 * The initramfs of a node without its machine: a root directory of its own, entered by chroot in namespaces
 * for mounts, processes, the host name and the network. The network holds the node's interface `node0` and
 * the controller's address.
 */
export class BootingNode extends NodeRoot {
  readonly #shell: Shell
  readonly #programs: Programs
  readonly #started: Child[] = []
  #controller: Child | undefined

  private constructor(t: Test, shell: Shell, programs: Programs) {
    super(t)
    this.#shell = shell
    this.#programs = programs
  }

  /** A node and its controller, both gone at the end of the test. */
  static async make(
    t: Test,
    shell: Shell,
    answers: readonly Answer[],
    programs: Programs = {}
  ): Promise<BootingNode> {
    requireRoot()
    requirePrograms(
      'ip',
      'nsenter',
      'unshare',
      'setpriv',
      'curl',
      'wget',
      'dash',
      'busybox',
      'script',
      '/usr/lib/klibc/bin/sh'
    )
    const node = new BootingNode(t, shell, programs)
    t.teardown(() => node.#close())
    node.#tools()
    const program = ['env', '--unset=NODE_OPTIONS', process.execPath, '-e', server, JSON.stringify(answers)]
    const apart = ['setpriv', '--pdeathsig', 'KILL', 'unshare', '--net', 'sh', '-e', '-c', wire, 'sh', mac]
    node.#controller = await startChild([...apart, ...program], log => log.includes('listening'))
    return node
  }

  /** Put before a command, it runs in the node's network, which lasts as long as the controller. */
  get #enter(): readonly string[] {
    return ['nsenter', `--net=/proc/${this.#controller?.pid}/ns/net`, 'setpriv', '--pdeathsig', 'KILL']
  }

  /** A DHCP server on the node's network, with 101 addresses. */
  async dhcpServer(): Promise<void> {
    requirePrograms('dhcpd')
    const directory = join(this.root, 'dhcpd')
    mkdirSync(directory)
    const configuration = `authoritative;
subnet 10.142.0.0 netmask 255.255.255.0 {
  range 10.142.0.100 10.142.0.200;
  option routers 10.142.0.1;
  option domain-name-servers 10.142.0.1, 10.142.0.3;
}
`
    this.#started.push(
      await startDhcpd({ enter: this.#enter, directory, configuration, device: 'controller0' })
    )
  }

  /** The address that the DHCP server gives to this machine's iPXE, which says who it is by its MAC. */
  async leaseOfFirmware(): Promise<string | undefined> {
    const client = ['busybox', 'udhcpc', '-f', '-n', '-q', '-i', 'node0', '-s', '/bin/true']
    const [program = '', ...args] = [
      ...this.#enter,
      'sh',
      '-c',
      'ip link set node0 up && "$@" 2>&1',
      'sh',
      ...client
    ]
    return (await output(program, args)).match(/lease of (\S+) obtained/)?.[1]
  }

  /** What was asked of the controller. */
  requests(): string[] {
    return (this.#controller?.output() ?? '').split('\n').filter(line => line.startsWith('GET '))
  }

  /** Addresses and flags of the node's interface. */
  async interface(): Promise<string> {
    const [program = '', ...args] = [...this.#enter, 'ip', 'address', 'show', 'dev', 'node0']
    return output(program, args)
  }

  /**
   * Boots with these kernel arguments until the console shows `until`, and returns the console. `typed`: what
   * is typed there, on a terminal. `script`: what is run.
   */
  async boot(
    kernel: Readonly<Record<string, string>>,
    until: RegExp,
    typed?: string,
    script = '/usr/lib/svc/svc-node.sh'
  ): Promise<string> {
    const words = Object.entries({ ...kernelArguments, ...kernel }).map(([name, value]) => `${name}=${value}`)
    this.write('cmdline', `${words.join(' ')}\n`)
    this.write('typed', typed ?? '')
    const interpreter = this.#shell === 'ash' ? '/bin/busybox ash' : '/bin/sh'
    const { usr = '/usr' } = this.#programs
    const terminal = typed === undefined ? '' : 'tty'
    const inside = ['sh', '-eu', '-c', sandbox, 'sh', this.root, interpreter, terminal, usr, script]
    const apart = [
      'unshare',
      '--mount',
      '--propagation',
      'private',
      '--uts',
      '--pid',
      '--fork',
      '--kill-child'
    ]
    const child = await startChild([...this.#enter, ...apart, ...inside], log => until.test(log))
    await child.kill()
    return child.output()
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#started, this.#controller].map(child => child?.stop()))
  }

  #tools(): void {
    this.mkdir('bin', 'dev', 'etc', 'host', 'host-svc', 'proc', 'run', 'sys', 'sysroot', 'usr/lib')
    this.link(
      '',
      ['lib', 'lib64'].map(name => [name, `host/${name}`])
    )
    this.link('usr/lib', [['svc', '/host-svc']])
    const tools = busyboxApplets('/bin/busybox').set('busybox', '/host/bin/busybox')
    if (this.#shell !== 'ash') {
      for (const name of systemTools) tools.set(name, `/host/bin/${name}`)
      tools.set('ip', '/host/bin/ip')
      tools.set('sh', this.#shell === 'klibc' ? '/host/lib/klibc/bin/sh' : `/host/bin/${this.#shell}`)
      tools.set('setsid', '/host/bin/setsid')
    }
    if (this.#shell === 'bash' || this.#shell === 'klibc') tools.set('curl', '/host/bin/curl')
    if (this.#shell === 'dash') tools.set('wget', '/host/bin/wget')
    const { further = {}, without = [] } = this.#programs
    for (const [name, path] of Object.entries(further)) tools.set(name, `/host/${path}`)
    for (const name of without) tools.delete(name)
    this.link('bin', tools)
  }
}
