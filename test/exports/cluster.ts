import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { machine } from '../inventory/machines.js'
import { Controller } from '../support/controller.js'
import { checkout, programEnv } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

/** A text with what ends a line, a word, a string or a comment in any of the formats, and a template. */
export const hostile =
  'r "1"\n# \\ \'{{ lookup("pipe", "id") }}\' \u00e9\u2028\t, = %n $(id) `id`\r@;|&<>*?[]{}:'

export const formats =
  'ansible clustershell genders hosts known-hosts slurm slurm-topology conman powerman prometheus'.split(' ')

const nodes = {
  node001: { group: 'compute', switch: 'sw1', variables: { rack: 'r1' } },
  node002: { group: 'compute', switch: 'sw1', variables: { rack: hostile, own: hostile }, comment: hostile },
  node003: { group: 'compute', variables: { rack: 'r1', slurm_options: hostile } },
  gpu1: { group: 'gpu-a', variables: { rack: 'r 1', slurm_options: 'Weight=5 Feature=a100,nvlink' } },
  gpu2: { group: 'gpu_a', variables: { rack: 'r-1' }, roles: 'login,web' }
}

/**
 * A controller with five nodes on loopback, whose texts are hostile and whose groups have like names, and
 * shipped scripts that ask it.
 */
export class ExportCluster {
  /** A directory for the files of the programs. */
  readonly directory: string
  readonly env: NodeJS.ProcessEnv

  private constructor(
    t: Test,
    readonly c: Controller
  ) {
    this.directory = scratch(t)
    writeFileSync(this.at('token'), `${c.token}\n`, { mode: 0o600 })
    this.env = {
      ...programEnv(),
      SVCD_URL: `http://127.0.0.1:${c.daemon.port}`,
      SVCD_TOKEN_FILE: this.at('token'),
      SVCD_EXPORT_CONF: this.at('none'),
      HOME: this.directory,
      NODE_OPTIONS: undefined
    }
  }

  static async start(t: Test, ...overrides: string[]): Promise<ExportCluster> {
    const c = await Controller.start(t, ...overrides)
    const must = async (path: string, body: object) => {
      const { status, text } = await c.post(path, body)
      if (status > 299) throw new Error(`${path}: ${status} ${text}`)
    }
    const boot = { interface: 'BOOTIF', network: 'cluster' }
    await must('/config/network/cluster', { network: '127.141.0.0/16' })
    await must('/config/network/ipmi', { network: '127.148.0.0/16' })
    await must('/config/bmcsetup/boards', { username: 'admin', password: 'secret' })
    await must('/config/osimage/compute', {})
    const interfaces = [boot, { interface: 'BMC', network: 'ipmi' }]
    await must('/config/group/compute', { osimage: 'compute', bmcsetupname: 'boards', interfaces })
    for (const group of ['gpu-a', 'gpu_a']) await must(`/config/group/${group}`, { interfaces: [boot] })
    await must('/config/switch/sw1', { network: 'cluster', ipaddress: '127.141.0.99', comment: hostile })
    for (const [name, node] of Object.entries(nodes)) {
      await must(`/config/node/${name}`, { ...node, interfaces: [] })
      await must(`/monitor/node/${name}`, { state: name === 'node003' ? hostile : 'installer.completed' })
      if (name !== 'node002') await must(`/monitor/inventory/${name}`, machine({ host_keys: [hostile] }))
    }
    return new ExportCluster(t, c)
  }

  at(name: string): string {
    return join(this.directory, name)
  }

  /** Runs a program to its end. Throws with all that it wrote if it fails or complains. */
  async run(program: string, ...args: string[]): Promise<string> {
    const { status, stdout, stderr } = await this.try(program, ...args)
    if (status !== 0 || stderr !== '')
      throw new Error(`${program} ${args.join(' ')}: ${status}\n${stderr}${stdout}`)
    return stdout
  }

  try(program: string, ...args: string[]): Promise<{ status: unknown; stdout: string; stderr: string }> {
    const options = { env: this.env, cwd: this.directory, timeout: 60_000 }
    return new Promise(resolve =>
      execFile(program, args, options, (error, stdout, stderr) =>
        resolve({ status: error ? (error.code ?? error.signal) : 0, stdout, stderr })
      ).stdin?.end()
    )
  }

  /** Writes an export to a file by the shipped script; returns its path. */
  async file(format: string, ...options: string[]): Promise<string> {
    await this.run(script('svcd-export'), ...options, format, this.at(format))
    return this.at(format)
  }
}

export const script = (name: string) => join(checkout, 'libexec', name)
