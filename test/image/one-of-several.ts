import type { Test } from 'tap'
import { Images } from '../../lib/image/images.js'
import { openJobs } from '../support/jobs.js'
import { until } from '../support/until.js'
import { Bench } from './bench.js'

type Call = (...asked: never) => unknown

interface Site {
  /** The names of the controllers that are there beside c1. */
  others: string[]
  /** What the others announce of directories that are out of their places. */
  outOfPlace: string[]
  /** Why no request can be recorded; '' where they can. */
  unrecorded: string
}

/** The work on images of controller c1, which writes, without a daemon around it. */
export async function oneOfSeveral(t: Test, work: object | ((real: Call) => Call) = {}) {
  const bench = await Bench.open(t)
  const { context } = bench
  const { jobs } = await openJobs(t)
  const site: Site = { others: ['c2'], outOfPlace: [], unrecorded: '' }
  const submitted: Promise<void>[] = []
  const images = await Images.open({
    ...context,
    config: context.config as never,
    work: {
      ...context.work,
      ...(typeof work === 'function' ? { call: work(context.work.call) } : work)
    } as never,
    jobs: {
      submit: async (...spec: Parameters<typeof jobs.submit>) => {
        if (site.unrecorded !== '') throw new Error(site.unrecorded)
        const job = await jobs.submit(...spec)
        submitted.push(job.done)
        return job
      }
    } as never,
    status: { history: () => [] } as never,
    remote: { prepare: async () => {}, forget: async () => {}, run: async () => '' } as never,
    controllers: {
      own: 'c1',
      others: () => site.others,
      whoHas: async () => undefined,
      having: async () => site.others,
      outOfPlace: () => site.outOfPlace
    },
    torrents: () => {}
  })
  t.teardown(() => images.close())
  /** Looks once for what is to be done with directories. */
  const look = () => images.trees.run()
  /** Waits until so many requests were asked for, and all have ended. */
  const ended = async (count: number) => {
    await until(
      () => submitted.length === count,
      () => [jobs.records(), bench.log]
    )
    await Promise.allSettled(submitted)
  }
  return { bench, images, jobs, site, look, ended }
}
