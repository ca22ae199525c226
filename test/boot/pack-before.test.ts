// rules 4.28: a controller that lacks the present pack, and has the one before, boots that one.
import t from 'tap'
import { PreviousPack } from '../../lib/boot/previous-pack.js'
import type { EffectiveNode } from '../../lib/model/effective.js'
import type { OsimageDoc, PackDoc } from '../../lib/model/types/osimage.js'

const packOf = (mark: string, time: number, more: object = {}) =>
  ({
    ...{
      name: `${mark}.tar.gz`,
      osimage: 'compute',
      sha256: mark.repeat(64),
      bytes: 1,
      time,
      packer: 'builtin'
    },
    ...{ kernelfile: `${mark}-vmlinuz`, initrdfile: `${mark}-initrd`, kernelversion: `6.1.${time}` },
    ...more
  }) as PackDoc
const filesOf = ({ name, kernelfile, initrdfile }: PackDoc) => ({ imagefile: name, kernelfile, initrdfile })
const all = (pack: PackDoc) => Object.values(filesOf(pack))

const [a, b, c] = [packOf('a', 1), packOf('b', 2), packOf('c', 3)]

function booting(
  image: object,
  packs: readonly PackDoc[],
  here: readonly unknown[],
  elsewhere: unknown[] = []
) {
  const doc = { name: 'compute', kernelversion: '6.1.3', ...image } as OsimageDoc
  const view = {
    names: (type: string) => (type === 'pack' ? packs.map(({ name }) => name) : ['compute']),
    get: (type: string, name: string) =>
      type === 'pack' ? packs.find(pack => pack.name === name) : name === 'compute' ? doc : undefined
  }
  const before = new PreviousPack({
    model: { view, cluster: { controller: { name: 'c2', address: '' } } } as never,
    hasFile: name => here.includes(name),
    mayBeOnPeer: name => elsewhere.includes(name)
  })
  const node = (osimagetag = 'default') =>
    ({ image: doc, settings: { osimage: 'compute', osimagetag } }) as EffectiveNode
  return { before, node, doc }
}

t.test('what is here, or may be with another controller, is booted as it is', async t => {
  for (const { before, node } of [
    booting(filesOf(c), [a, b, c], [...all(c), ...all(b)]),
    booting(filesOf(c), [a, b, c], all(b), all(c)),
    booting(filesOf(c), [a, b, c], [...all(b), c.kernelfile], [c.initrdfile, c.name])
  ]) {
    const target = node()
    t.equal(before.withPreviousPack(target), target)
    t.equal(before.sentence(target), undefined)
    t.equal(before.condition, undefined)
  }
})

t.test('kernel, initramfs and packed image are all of the pack before', async t => {
  for (const missing of all(c)) {
    const here = [...all(b), ...all(c).filter(file => file !== missing)]
    const { before, node, doc } = booting(filesOf(c), [c, a, b], here)
    const target = before.withPreviousPack(node())
    t.strictSame(target.image, { ...doc, ...filesOf(b), kernelversion: '6.1.2' }, String(missing))
    const sentence =
      `OS image compute: controller c2 does not have ${missing}, and boots the pack before, b.tar.gz, until it does: start the ` +
      'controller that has it, or pack the image again'
    t.equal(before.sentence(target), sentence, String(missing))
    t.strictSame(before.condition, { ok: true, reason: sentence })
    const tagged = node('v1')
    t.equal(before.withPreviousPack(tagged), tagged, 'a tag pins its files')
  }
})

t.test('no half of it, no older one, none of another image', async t => {
  const none = (packs: PackDoc[], here: unknown[], image: object = filesOf(c)) => {
    const { before, node } = booting(image, packs, here)
    const target = node()
    t.equal(before.withPreviousPack(target), target)
    t.equal(before.condition, undefined)
  }
  for (const missing of all(b)) none([a, b, c], [...all(a), ...all(b).filter(file => file !== missing)])
  none([c], all(b))
  none([packOf('b', 2, { osimage: 'other' }), c], all(b))
  // A file of the admin's own has no pack before it.
  none([a, b], all(b), { imagefile: 'own.tar.gz', kernelfile: 'own', initrdfile: 'own' })
})

t.test("an admin's own kernel stays; one that goes with another pack is not guessed", async t => {
  const own = booting({ ...filesOf(c), kernelfile: 'mine' }, [b, c], [...all(b), 'mine'])
  t.match(own.before.withPreviousPack(own.node()).image, {
    imagefile: b.name,
    kernelfile: 'mine',
    initrdfile: b.initrdfile
  })
  // One that an earlier pack of the same tree had is no file of the admin's.
  const earlier = `compute-${'c'.repeat(12)}-vmlinuz-5`
  const left = booting({ ...filesOf(c), kernelfile: earlier }, [b, c], all(b))
  t.match(left.before.withPreviousPack(left.node()).image, filesOf(b))
  const kept = packOf('b', 2, { kernelfile: undefined })
  const unknown = booting(filesOf(c), [kept, c], all(b))
  const target = unknown.node()
  t.equal(unknown.before.withPreviousPack(target), target)
})
