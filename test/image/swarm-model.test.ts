import { join } from 'node:path'
import t from 'tap'
import { compiled, node, output } from '../support/programs.js'

/** A measured figure and what bench/swarm-model.mjs gives for it. */
interface Pair {
  readonly measured: number
  readonly model: number
}

interface Checked {
  readonly mb: number
  readonly torrent: Pair
  readonly images: Pair
  readonly http?: Pair
}

/** How far the model is from what was measured, as a share of it. */
const off = ({ measured, model }: Pair) => Math.abs(model / measured - 1)

t.test('the model of image distribution gives the figures that were measured', async t => {
  const [program = '', ...args] = [...node, join(compiled, 'bench/swarm-model.mjs'), '--json']
  const { start, share, checked } = JSON.parse(await output(program, args)) as {
    start: number
    share: number
    checked: readonly Checked[]
  }
  t.ok(start > 0 && share > 0 && share < 1, `a start of ${start} s, ${share} of a link`)
  t.strictSame(
    checked.map(({ mb }) => mb),
    [25, 210, 1049],
    'megabytes'
  )
  // The least and the largest are what it is fitted to.
  for (const { mb, torrent, images, http } of checked) {
    t.ok(off(torrent) < 0.1, `${mb} MB by torrent: ${JSON.stringify(torrent)}`)
    if (http) t.ok(off(http) < 0.1, `${mb} MB by http: ${JSON.stringify(http)}`)
    // A small image is with all nodes before they have found each other: then the controller sends more of
    // it.
    if (mb > 100) t.ok(off(images) < 0.2, `${mb} MB, images sent: ${JSON.stringify(images)}`)
  }
})
