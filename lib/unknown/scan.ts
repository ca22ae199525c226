import { inParallel } from '../base/concurrency.js'
import { badRequest } from '../base/errors.js'
import { addTo } from '../base/lists.js'
import { firstOf } from '../base/log.js'
import { SlidingWindow } from '../base/rate-limit.js'
import type { Config } from '../config/types.js'
import { type Bmc, bmcAccess, cleanLine } from '../control/bmc.js'
import { type BmcMachine, readMachine } from '../control/redfish/redfish.js'
import type { JobContext, Jobs, SubmittedJob } from '../jobs/jobs.js'
import { contains, formatAddress, hosts, type Prefix } from '../model/address.js'
import type { Actor, Model } from '../model/model.js'
import { controllerAddresses } from '../model/networks.js'
import { claims, macsOf, type ScannedMachine } from './machines.js'

interface ScanOptions {
  readonly model: Model
  readonly jobs: Pick<Jobs, 'submit'>
  readonly config: Config['control']
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
  readonly found: (machine: ScannedMachine) => void
}

/** Addresses of a network, those that are visited at once, and those begun in a second. */
const MOST_ADDRESSES = 65_536
const AT_ONCE = 64
const IN_A_SECOND = 64
/** Addresses that a line names. */
const MOST_NAMED = 4
/** Nobody is at most addresses: a BMC takes connections sooner than this. */
const CONNECT_MS = 3000
/** A BMC answers some ten requests in so many time limits of one command. */
const PATIENCE = 4
/** Codes of connections to where no BMC is. */
const NOBODY = /^(?:ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT)$/

/** Asks the BMCs of a network for their machines, by Redfish (rules 13.5). */
export class BmcScan {
  readonly #starts: SlidingWindow

  constructor(private readonly o: ScanOptions) {
    this.#starts = new SlidingWindow(IN_A_SECOND, 1000, o.ticks)
  }

  /** Submits a job that visits each address which no object has. Throws 404, 400, and 503 as Jobs.submit. */
  async submit(network: string, setup: string, { who }: Actor): Promise<SubmittedJob> {
    const { model, jobs } = this.o
    const { name } = model.get('network', network)
    const prefix = model.view.index.networks.get(name) as Prefix
    const count = prefix.last - prefix.first + 1
    if (count > MOST_ADDRESSES)
      throw badRequest(
        `network ${name} has ${count} addresses, and a scan takes ${MOST_ADDRESSES} at most: ` +
          'add a network for the BMCs alone',
        'invalid-field'
      )
    const access = bmcAccess(model.get('bmcsetup', setup), (lacks, wayOut) =>
      badRequest(`${lacks}: ${wayOut}`, 'missing-field')
    )
    // The port of a set-up for IPMI is not that of Redfish.
    const port = access.protocol === 'redfish' ? access.port : undefined
    const bmc = { ...access, node: '', protocol: 'redfish' as const, port }
    return jobs.submit({
      ...{ kind: 'scan', object: `network ${name}`, by: who, lanes: [`scan ${name}`], remote: true },
      reads: true,
      run: job => this.#all(job, name, prefix, bmc)
    })
  }

  async #all(job: JobContext, network: string, prefix: Prefix, bmc: Omit<Bmc, 'address'>): Promise<void> {
    const { model, found } = this.o
    const { index } = model.view
    const controllers = controllerAddresses(model.cluster)
    const addresses: number[] = []
    const { first, last } = hosts(prefix)
    for (let address = first; address <= last; address++)
      if (!index.usedAddresses.has(address) && !controllers.has(address)) addresses.push(address)
    let [ended, there] = [0, 0]
    /** One host may answer for each address of a network: the same fault is one line. */
    const faults = new Map<string, string[]>()
    await inParallel(addresses, AT_ONCE, async address => {
      job.signal.throwIfAborted()
      await this.#starts.turn(job.signal)
      const now = model.view.index.networks.get(network)
      if (!now || !contains(now, address))
        throw new Error(`network ${network} has been changed: scan it again`)
      const text = formatAddress(address)
      try {
        const machine = await this.#visit({ ...bmc, address: text }, job.signal)
        const { maker = '', product = '', serial = '-' } = machine
        found({ ...machine, network })
        there++
        job.line(`${text}: ${maker} ${product}, serial ${serial}, ${machine.macs.length} MACs`)
      } catch (error) {
        job.signal.throwIfAborted()
        const { message, cause } = error as Error & { cause?: NodeJS.ErrnoException }
        const isSilent = cause?.name === 'TimeLimitError' || NOBODY.test(cause?.code ?? '')
        if (!isSilent) addTo(faults, cleanLine(message), text)
      }
      job.progress(++ended / addresses.length)
    })
    for (const [fault, at] of faults) job.line(`${firstOf(at, MOST_NAMED)}: ${fault}`)
    const isSilent = there === 0 && faults.size === 0
    const result = isSilent ? 'no BMC answered' : there === 1 ? '1 machine' : `${there} machines`
    job.line(`${result} at ${addresses.length} addresses of network ${network}`)
  }

  async #visit(bmc: Bmc, signal: AbortSignal): Promise<Omit<ScannedMachine, 'network'>> {
    const { time_limit, redfish_port, ca_file } = this.o.config
    const { texts, macs, bmcMacs }: BmcMachine = await readMachine(bmc, {
      ...{ port: bmc.port ?? redfish_port, timeLimitMs: PATIENCE * time_limit, signal },
      ...{ caFile: ca_file, connectMs: CONNECT_MS }
    })
    const [bmcMac] = macsOf(bmcMacs)
    const said = claims(macs, name => texts[name])
    return { ...said, bmc: bmc.address, ...(bmcMac === undefined ? {} : { bmcMac }) }
  }
}
