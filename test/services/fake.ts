import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import type { View } from '../../lib/model/stored.js'
import type { ServiceSettings } from '../../lib/services/backend.js'
import { backendOf, type ServiceName } from '../../lib/services/backends.js'
import { capture } from '../../lib/services/capture.js'
import { dhcpData } from '../../lib/services/dhcp/data.js'
import { dnsData } from '../../lib/services/dns/data.js'
import { renderJob } from '../../lib/services/render-job.js'
import { Service, type ServiceOptions } from '../../lib/services/service.js'
import { scratch } from '../support/scratch.js'
import { settings as cluster, type Objects, view } from './cluster.js'
import { options, templates } from './rendered.js'

const script = (file: string, text: string) => {
  writeFileSync(file, `#!/bin/sh\n${text}`)
  chmodSync(file, 0o755)
  return file
}

/** A cluster with another domain name in what is rendered. */
export const named = (name: string): Objects => ({
  network: {
    [name]: {
      network: '10.0.0.0/8',
      gateway: '10.0.0.1',
      dhcp: true,
      dhcp_range_begin: '10.9.0.1',
      dhcp_range_end: '10.9.0.9'
    }
  }
})

/** Notes of services as files, which tests read and change. */
const notesIn = (directory: string): ServiceOptions['notes'] => ({
  get: name => {
    const file = join(directory, `${name}.json`)
    return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : undefined
  },
  set: async (name, state) => {
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, `${name}.json`), JSON.stringify(state, undefined, 2))
  }
})

/** A server that is two scripts: what was asked of it is in a file, and flags (files) make it fail. */
export class Fake {
  readonly directory: string
  readonly config: string
  readonly log: string[] = []
  readonly settings: ServiceSettings
  service: Service
  objects: Objects
  readonly #open: (more: Partial<ServiceOptions>) => Service
  #made: { readonly objects: Objects; readonly view: View } | undefined
  nowMs = Date.UTC(2026, 10, 20)

  constructor(
    t: Test,
    name: ServiceName,
    server: string,
    objects: Objects,
    more: Partial<ServiceOptions> = {},
    settings: Partial<ServiceSettings> = {}
  ) {
    const directory = scratch(t)
    for (const name of ['etc', 'files', 'state']) mkdirSync(join(directory, name))
    this.directory = directory
    this.objects = objects
    this.config = join(directory, 'etc', 'main.conf')
    const control = script(
      join(directory, 'control'),
      `cd ${directory}
echo "$1" >> asked
case $1 in
status) test ! -e nobus || { echo "Failed to connect to bus: No such file or directory" >&2; exit 1; }
   test -e running || { if test -e systemd; then cat words; else echo "$2 is dead"; fi; exit 3; } ;;
stop) rm running ;;
*) test ! -e nonotes || { rm -r state/services; touch state/services; }
   test ! -e broken || { echo "$1: no good" >&2; exit 5; }
   if test "$1" = reload && test -e norel; then echo "Job type reload is not applicable for unit $2.service." >&2; exit 1; fi
   if test -e systemd && grep -q poison etc/*; then rm -f running; echo "Job for $2 failed." >&2; exit 1; fi
   if grep -q poison etc/*; then rm -f running; test ! -e fragile || mv fragile broken; echo "poisoned" >&2; test -e silent || exit 7; else touch running; fi ;;
esac
`
    )
    const check = script(
      join(directory, 'check'),
      `echo check >> ${directory}/asked
if test -e ${directory}/refuse && grep -q ^dhcp-host= "$1"; then echo "$1:3: refused" >&2; exit 1; fi
grep -n forbidden "$1" >&2 || exit 0
echo "$1:7: syntax error near forbidden" >&2
exit 1
`
    )
    writeFileSync(join(directory, 'running'), '')
    this.settings = {
      leaseFile: '',
      ...backendOf(name, server).defaults,
      server,
      config: this.config,
      directory: join(directory, 'files'),
      check: [check],
      reload: [],
      control: [control],
      service: 'fake',
      gather: 20,
      controlSocket: '',
      ...settings
    }
    const base: ServiceOptions = {
      service: name,
      settings: this.settings,
      templates,
      notes: notesIn(join(directory, 'state', 'services')),
      data: () => {
        const captured = capture(this.prepare(), cluster)
        return name === 'dhcp' ? dhcpData(captured, options) : dnsData(captured)
      },
      log: createLog('info', line => this.log.push(line)),
      now: () => this.nowMs,
      settle: 20,
      retry: 3_600_000,
      render: async job => renderJob(job)
    }
    this.#open = also => new Service({ ...base, ...also })
    this.service = this.#open(more)
    t.teardown(() => this.service.close())
  }

  /** The objects as the service sees them; made once. */
  prepare(): View {
    if (this.#made?.objects !== this.objects) this.#made = { objects: this.objects, view: view(this.objects) }
    return this.#made.view
  }

  /** Another daemon on the same state, with other options. */
  async restart(more: Partial<ServiceOptions> = {}): Promise<void> {
    await this.service.close()
    this.service = this.#open(more)
    await this.start()
  }

  /** Ends the daemon as a power cut does: the disk stays as it is now. */
  async crash(): Promise<void> {
    const kept = `${this.directory}.crashed`
    cpSync(this.directory, kept, { recursive: true, preserveTimestamps: true })
    await this.service.close()
    rmSync(this.directory, { recursive: true })
    renameSync(kept, this.directory)
  }

  /** Whether the server was asked that since `asked` was. */
  seen(word: string): boolean {
    return (this.read(join(this.directory, 'asked')) ?? '').split('\n').includes(word)
  }

  has(name: string): boolean {
    return existsSync(join(this.directory, name))
  }

  /** What was asked of the server since the last call, looks at it left out. */
  asked(): string[] {
    const file = join(this.directory, 'asked')
    const all = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
    rmSync(file, { force: true })
    // A look that is under way has opened the file and written nothing yet.
    return all.filter(word => word !== 'status' && word !== '')
  }

  read(path = this.config): string | undefined {
    return existsSync(path) ? readFileSync(path, 'utf8') : undefined
  }

  flag(name: string): void {
    writeFileSync(join(this.directory, name), '')
  }

  unflag(name: string): void {
    rmSync(join(this.directory, name), { force: true })
  }

  /** Other objects, and the wait until that has come to its end. */
  async change(objects: Objects): Promise<void> {
    this.objects = objects
    this.service.changed()
    await this.service.settled()
  }

  async start(): Promise<void> {
    this.service.start()
    await this.service.settled()
  }
}
