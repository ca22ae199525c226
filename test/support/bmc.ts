import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Child, start } from './child.js'
import { output, requirePrograms } from './programs.js'
import { scratch } from './scratch.js'
import { until } from './until.js'

interface BmcOptions {
  readonly port: number
  readonly user?: string
  readonly password?: string
  /** TCP port of the machine's serial console, on 127.0.0.1. */
  readonly serial?: number
  /** Put before the command line, it leads into the network of the BMC. */
  readonly enter?: readonly string[]
}

/** A machine that a BMC switches: a file holds its power, another what it was told. */
const chassis = (directory: string) => `#!/bin/sh
cd ${directory} || exit 1
shift
verb=$1
shift
case $verb in
  get) for what; do [ "$what" = power ] && echo "power:$(cat power)"; done ;;
  set)
    echo "$*" >> told
    while [ $# -gt 1 ]; do
      [ "$1" = power ] && echo "$2" > power
      shift 2
    done ;;
esac
exit 0
`

/** A BMC that speaks IPMI over a LAN: the program ipmi_sim, on an address of its own of 127.0.0.0/8. */
export class Bmc {
  private constructor(
    readonly address: string,
    readonly directory: string,
    readonly child: Child,
    private readonly reach: readonly string[]
  ) {}

  static async start(t: Test, address: string, options: BmcOptions): Promise<Bmc> {
    const { port, user = 'admin', password = 'secret', serial, enter = [] } = options
    requirePrograms('ipmi_sim', 'ipmitool')
    const directory = join(scratch(t), address)
    mkdirSync(directory)
    const file = (name: string, text: string) => {
      writeFileSync(join(directory, name), text)
      return join(directory, name)
    }
    file('power', '0\n')
    const switches = file('chassis.sh', chassis(directory))
    chmodSync(switches, 0o755)
    const lan = file(
      'lan.conf',
      `name "bmc"
set_working_mc 0x20
  startlan 1
    addr ${address} ${port}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "${switches} 0x20"
${serial === undefined ? '' : `  sol "tcp:127.0.0.1:${serial}" 115200\n`}  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "${user}" "${password}" admin 10 none md2 md5 straight
`
    )
    const emulation = file(
      'bmc.emu',
      'mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nsel_enable 0x20 1000 0x0a\nmc_enable 0x20\n'
    )
    const words = ['ipmi_sim', '-c', lan, '-f', emulation, '-s', join(directory, 'state'), '-n']
    const [program = '', ...args] = [...enter, ...words]
    const child = start(program, args, { input: '' })
    t.teardown(() => child.kill())
    const reach = [
      ...enter,
      'env',
      `IPMI_PASSWORD=${password}`,
      ...['ipmitool', '-I', 'lanplus', '-C', '3', '-H', address, '-p', String(port), '-U', user, '-E']
    ]
    const bmc = new Bmc(address, directory, child, reach)
    await until(
      async () => isListening(await tableOf(enter), address, port),
      () => child.output()
    )
    return bmc
  }

  /** Asks it with ipmitool. */
  ask(...words: string[]): Promise<string> {
    const [program = '', ...args] = [...this.reach, ...words]
    return output(program, args)
  }

  /** Whether its machine is switched on. */
  get isOn(): boolean {
    return readFileSync(join(this.directory, 'power'), 'utf8').trim() === '1'
  }

  /** Switches its machine behind its back. */
  set isOn(on: boolean) {
    writeFileSync(join(this.directory, 'power'), `${Number(on)}\n`)
  }

  /** What its machine was told, since the last call of `forget`. */
  get told(): string[] {
    const file = join(this.directory, 'told')
    return existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : []
  }

  /** Puts an event into its log: a temperature that is too high. */
  async event(): Promise<void> {
    const record = [
      '0',
      '0',
      '2',
      '0',
      '0',
      '0',
      '0',
      '0x20',
      '0',
      '4',
      '1',
      '0x30',
      '1',
      '0x59',
      '0x5a',
      '0x5f'
    ]
    await this.ask('raw', '0x0a', '0x44', ...record)
  }

  forget(): void {
    writeFileSync(join(this.directory, 'told'), '')
  }
}

/** The UDP sockets of a network, as its kernel lists them. */
const tableOf = async (enter: readonly string[]): Promise<string> => {
  const [program = '', ...args] = [...enter, 'cat', '/proc/net/udp']
  return output(program, args)
}

/** Whether somebody has the UDP port of the address. */
function isListening(table: string, address: string, port: number): boolean {
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number)
  const hex = Buffer.from([d, c, b, a]).toString('hex').toUpperCase()
  const local = `${hex}:${port.toString(16).toUpperCase().padStart(4, '0')}`
  return table.includes(local)
}
