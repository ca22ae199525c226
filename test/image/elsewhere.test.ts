import { rmSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkHere, here, isMovedHere } from '../../lib/image/trees.js'
import { place } from './place.js'

// rules 9.15
t.test('which directories are here', async t => {
  const { images } = place(t)
  const config = { image: { directory: images } } as never
  const whoHas = async () => undefined
  const having = async () => []
  const of = (own: string, ...others: string[]) => ({
    config,
    controllers: { own, others: () => others, whoHas, having, outOfPlace: () => [] }
  })
  const compute = { name: 'compute' }
  const at = (controller: string) => ({ ...compute, controller })
  await t.resolves(checkHere({ config }, at('c1')), 'there is one controller alone')
  await t.resolves(checkHere(of('c2', 'c1'), compute), 'nobody knows')
  await t.resolves(checkHere(of('c1', 'c2'), at('c1')))
  await t.rejects(checkHere(of('c2', 'c1'), at('c1')), {
    code: 'image-elsewhere',
    status: 503,
    message:
      `OS image compute: its directory ${images}/compute is on controller c1, and controller c2 writes: make c1 the one that ` +
      'writes (type systemctl stop svcd on the others, and systemctl start svcd there once svcctl cluster show lists c1 ' +
      'as primary), and ask again'
  })
  const path = `${images}/compute`
  const gone = `OS image compute: its directory ${path} is on controller c1, which is not there: start svcd on c1; or `
  const again = `set path again: svcctl osimage set compute path=${path}`
  await t.rejects(checkHere(of('c2'), at('c1')), {
    code: 'image-elsewhere',
    status: 503,
    message: `${gone}to use the directory ${path} of controller c2 from now on, ${again}`
  })
  rmSync(join(images, 'compute'), { recursive: true })
  await t.rejects(checkHere(of('c2'), at('c1')), {
    status: 503,
    message: `${gone}bring the directory to controller c2, and ${again}`
  })
  await t.rejects(
    checkHere(of('c2', 'c1'), { ...at('c1'), path: `${images}/login` }),
    /images\/login is on controller c1/
  )
  t.same(here({ config }), {})
  t.same(here(of('c1')), { controller: 'c1' })
})

// rules 9.15
t.test(
  'path alone, as it is, says that the directory here is the one while the other is not there',
  async t => {
    const { images } = place(t)
    const config = { image: { directory: images } } as never
    const of = (...others: string[]) => ({
      config,
      controllers: { own: 'c2', others: () => others } as never
    })
    const given = (values: object, newName?: string) =>
      ({ values: new Map(Object.entries(values)), newName, interfaces: [], override: false }) as never
    const path = `${images}/compute`
    const image = { name: 'compute', controller: 'c1' }
    const alone = given({ path })
    t.equal(await isMovedHere(of('c3'), image, alone), true)
    t.equal(await isMovedHere(of('c3'), image, given({ path: null })), true, 'an image without a path')
    t.equal(await isMovedHere(of('c1'), image, alone), false, 'it is there')
    t.equal(await isMovedHere(of('c3'), image, given({ path, comment: '' })), false, 'posted as it was read')
    t.equal(await isMovedHere(of('c3'), image, given({ path }, 'other')), false, 'a rename')
    t.equal(await isMovedHere(of('c3'), image, given({ comment: '' })), false)
    t.equal(await isMovedHere(of('c3'), { ...image, name: 'absent' }, alone), false, 'there is none here')
    t.equal(await isMovedHere(of('c3'), { ...image, controller: 'c2' }, alone), false, 'it is here')
    t.equal(await isMovedHere(of('c3'), { name: 'compute' }, alone), false, 'nobody knows')
    t.equal(await isMovedHere({ config }, image, alone), false, 'there is one controller alone')
  }
)
