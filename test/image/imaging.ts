import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { Controller } from '../support/controller.js'
import { Gate } from '../support/jobs.js'
import { notesIn } from '../support/notes.js'
import { stored } from '../support/state.js'
import { until } from '../support/until.js'
import { type Files, makeTree, small } from './small-tree.js'

export const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')

/** A controller with an image `compute` that has a small tree, and what the tests ask of it. */
export async function beginning(t: Test, files: Files = small, ...overrides: string[]) {
  const c = await Controller.start(t, ...overrides)
  const images = join(c.directory, 'images')
  const directory = join(c.directory, 'files')
  const tree = makeTree(join(images, 'compute'), files)
  await c.post('/config/osimage/compute', { distribution: 'debian' })
  const image = async (name = 'compute') =>
    (await c.get(`/config/osimage/${name}`)).body?.config.osimage[name]
  const pack = (name = 'compute') => c.get(`/config/osimage/${name}/_pack`)
  const served = (file: string) => readFileSync(join(directory, file))
  const packs = async () => Object.keys(await stored(c)).filter(file => file.startsWith('pack/'))
  /** The records of a kind of request, newest first. */
  const records = async (kind: string) => {
    const { monitor } = (await c.get('/monitor/request')).body
    const ids = Object.values<{ request_id: string; kind: string }>(monitor.request).filter(
      one => one.kind === kind
    )
    return Promise.all(
      ids.map(async ({ request_id: id }) => (await c.get(`/monitor/request/${id}`)).body.monitor.request[id])
    )
  }
  /** The newest record of a kind once it has ended. */
  const ended = async (kind: string) => {
    let record: Awaited<ReturnType<typeof records>>[number]
    await until(async () => {
      ;[record] = await records(kind)
      return Boolean(record?.ended)
    }, `the end of a ${kind}`)
    return record
  }
  /** Keeps the jobs of a lane from running until the gate is opened. */
  const hold = async (lane: string) => {
    const gate = new Gate('gate', [lane])
    await c.daemon.jobs.submit(gate.spec)
    await gate.began
    return gate
  }
  /** Nothing that was begun is left. */
  const clean = (what: string) => {
    const left = [...readdirSync(directory), ...(existsSync(images) ? readdirSync(images) : [])]
    t.strictSame(
      // An import keeps its layers.
      left.filter(name => name.startsWith('.') && name !== '.svcd-layers'),
      [],
      `${what}: no temporary is left`
    )
    t.strictSame(notesIn(join(c.directory, 'state')), [], `${what}: no note is left`)
  }
  return { c, images, directory, tree, image, pack, served, packs, records, ended, hold, clean }
}
