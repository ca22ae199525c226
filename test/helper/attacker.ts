/*
 * A process with the rights of user svcd and nothing else that sends orders to the real helper: `rename`
 * without end, and every command in rounds, four at a time. Arguments: the socket, the directory of images,
 * how many rounds. It says one line for each answer of a command: the command and `done`, or why not; and
 * what it got to see of what no image holds.
 */
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Args, Name } from '../../lib/helper/commands.js'
import { HelperClient } from '../../lib/helper/start.js'
import { kernel } from '../image/initramfs-tree.js'

const [socket = '', images = '', files = '', rounds = '0'] = process.argv.slice(2)
process.setgroups?.([])
process.setgid?.(65534)
process.setuid?.(65534)

const helper = () =>
  new HelperClient(async () => {
    const connection = connect(socket)
    await new Promise((resolve, reject) => connection.once('connect', resolve).once('error', reject))
    return connection
  }, 60_000)
const work = helper()
const renaming = helper()
const tell = (text: string) => console.log(text.replaceAll('\n', ' '))

const order = async <N extends Name>(command: N, args: Args<N>, timeLimitMs = 60_000): Promise<boolean> => {
  try {
    await work.call(command, args, { timeLimitMs })
    tell(`${command} done`)
    return true
  } catch (error) {
    tell(`${command} ${(error as Error).message}`)
    return false
  }
}

/** A file that svcd owns: what it holds is known to svcd. */
function look(output: string): void {
  const path = join(files, output)
  if (!existsSync(path)) return
  if (readFileSync(path, 'latin1').includes('a secret of this machine')) tell(`SEEN in ${output}`)
  rmSync(path)
}

let isOver = false
const rename = (parent: string, from: string, to: string) =>
  renaming.call('rename', { parent, from, to }).catch(() => {})
/**
 * `images/p/x` is an image, `images/q/x` a link that leads out: they change places. So do directories in the
 * inner image.
 */
async function swap(): Promise<void> {
  while (!isOver) {
    await sleep(Math.random() * 400)
    for (const [from = '', to = ''] of [
      ['p', 'r'],
      ['q', 'p'],
      ['p', 'q'],
      ['r', 'p']
    ])
      await rename('', from, to)
    const inner = 'outer/srv/inner'
    for (const name of ['run', 'tmp', 'usr', 'boot']) {
      await rename(inner, name, `${name}.gone`)
      await rename(inner, `${name}.gone`, name)
    }
  }
}

/** Ends when the file is removed that is there while it is the outer image's turn. */
const outer = order(
  'initramfs',
  {
    tree: join(images, 'outer'),
    kernelversion: kernel,
    dracutmodules: [],
    kernelmodules: [],
    record: undefined
  },
  3_600_000
)
let round = 0
void outer.then(() => tell(`OUTER ended in round ${round}`))
const swapping = swap()

async function oneRound(number: number): Promise<void> {
  const name = (kind: number) => `.svcd-${(number * 16 + kind).toString(16).padStart(16, '0')}`
  const [archive, copied, cloned, grabbed] = [name(0), name(1), name(2), name(3)]
  const x = join(images, 'p/x')
  const node = { node: 'node001', address: '127.0.0.1', filesystems: [], exclude: [], own: [] }
  const packer = number % 2 === 0 ? 'system' : 'builtin'
  const withNode = number % 10 === 0
  await Promise.all([
    order('initramfs', {
      tree: join(images, 'outer/srv/inner'),
      ...{ kernelversion: kernel, dracutmodules: [], kernelmodules: [], record: undefined }
    }),
    order('pack', { tree: x, excludes: [], packer, compressor: 'none', output: archive }),
    order('readable', { tree: x, path: 'etc/word' }),
    order('copy', { tree: x, path: 'etc/word', output: copied }),
    order('clone', { tree: x, parent: 'p', work: cloned }),
    ...(withNode
      ? [
          order('grab', { ...node, dryrun: false, tree: x, parent: 'p', work: grabbed }),
          order('push', { ...node, dryrun: true, tree: x })
        ]
      : [])
  ])
  look(archive)
  look(copied)
  for (const made of withNode ? [cloned, grabbed] : [cloned]) {
    const output = name(4)
    for (const parent of ['p', 'q']) {
      if (await order('copy', { tree: join(images, parent, made), path: 'etc/word', output })) look(output)
      await order('sync', { parent, work: made })
      await order('remove', { parent, name: made })
    }
  }
  tell(`ROUND ${number}`)
}

const lane = async () => {
  while (round < Number(rounds)) await oneRound(++round)
}
await Promise.all([lane(), lane(), lane(), lane()])
isOver = true
await swapping
await outer
await work.close()
await renaming.close()
