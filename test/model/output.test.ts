import t from 'tap'
import { answerSourceOf, show } from '../../lib/model/answer.js'
import { MemoryCluster, settings } from '../support/memory-cluster.js'

const bmc = ['setupbmc', 'bmcsetupname']
const install = ['domain', 'osimage', 'osimagetag', 'osimagetagid', 'prescript', 'partscript', 'postscript']
const boot = ['netboot', 'bootmenu', 'localinstall']
const provision = ['roles', 'provision_interface', 'provision_method', 'provision_fallback']
const users = 'unmanaged_bmc_users'
const added = [
  'netboot_once',
  'kerneloptions',
  'variables',
  'files',
  'disklayout',
  'loader',
  'trust',
  'root_format'
]
const tpm = ['tpm_uuid', 'tpm_pubkey', 'tpm_sha256']
const place = ['group', 'macaddr', 'switch', 'switchport', 'service']

const orders = {
  group: [...bmc, ...install, ...boot, 'comment', ...provision, users, ...added],
  node: [
    ...[...place, ...bmc, users, 'status', 'comment', ...install, ...boot, ...provision],
    ...[...tpm, 'vendor', 'assettag', 'serial', 'uuid', 'rescue', ...added]
  ]
}
const inherited = new Set([...bmc, ...install, ...boot, ...provision, users])
inherited.delete('osimagetagid')
inherited.add('netboot_once')
inherited.add('variables')
inherited.add('disklayout')
inherited.add('loader')
inherited.add('trust')
inherited.add('root_format')

for (const type of ['group', 'node'] as const)
  t.test(`the keys of a ${type} have the order of the interface's tables`, async t => {
    const { model } = new MemoryCluster({ [`${type}/x`]: {} })
    const doc = model.get(type, 'x')
    const shown = show(
      type,
      answerSourceOf(type, doc, model.view, () => null),
      { cluster: settings, masked: false }
    )
    const order = orders[type]
    const sources = order.filter(name => inherited.has(name)).map(name => `_${name}_source`)
    t.strictSame(Object.keys(shown), [
      'name',
      ...order.filter(name => name !== 'variables'),
      'interfaces',
      // What holds an object comes behind the lists (rules 2.17).
      'variables',
      '_override',
      ...sources,
      '_kerneloptions',
      '_kerneloptions_source'
    ])
  })
