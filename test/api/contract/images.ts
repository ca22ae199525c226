import type { Cases, Step } from './case.js'

const one = '/config/osimage/idle'
const missing = (path: string, body?: unknown): Step => ({
  what: 'a missing image',
  ask: body === undefined ? [path] : [path, body],
  status: 404,
  says: /OS image none does not exist/
})
const queued = { message: 'queued', request_id: /^[0-9a-f]{32}$/ }
const prefer = { Prefer: 'respond-async' }
/** A pack, and the image that names it. */
const packed = [/^pack\/idle-[0-9a-f]{12}\.tar\.zst\.json$/, /^osimage\/idle\.json$/]
const noTree: Step = {
  what: 'an image without a directory',
  ask: ['/config/osimage/compute/_pack'],
  status: 503,
  says: /compute: field "path" is not set/
}
/** A node on this machine, where no ssh server listens at the port of the ini. */
const loopback: Step['before'] = [
  ['/config/network/loop', { network: '127.0.0.0/8' }],
  ['/config/group/loop', { interfaces: [{ interface: 'BOOTIF', network: 'loop' }] }],
  ['/config/node/l1', { group: 'loop' }]
]
const refused = (path: string, name: string): readonly Step[] => [
  { what: 'no image', ask: [path, {}], status: 400, says: /"osimage" is missing/ },
  { what: 'an unknown field', ask: [path, { osimage: 'idle', x: 1 }], status: 400, says: /no field "x"/ },
  {
    what: 'both ways at once',
    ask: [path, { osimage: 'idle', dryrun: true, nodry: true }],
    status: 400,
    says: /"dryrun".*"nodry"/
  },
  missing(path, { osimage: 'none' }),
  {
    what: 'a missing object',
    ask: [path.replace(name, 'none'), { osimage: 'idle' }],
    status: 404,
    says: /none does not exist/
  }
]
const ofNode = (what: string): readonly Step[] => [
  ...refused(`/config/node/n1/${what}`, 'n1'),
  {
    what: 'a node without an address',
    ask: [`/config/node/n2/${what}`, { osimage: 'idle' }],
    status: 404,
    says: /node n2 has no address/
  },
  {
    what: 'a node that cannot be reached',
    before: loopback,
    ask: [`/config/node/l1/${what}`, { config: { node: { l1: { osimage: 'idle', dryrun: true } } } }],
    status: 404,
    says: /node l1 .*no ssh server runs there/
  }
]

/** What is done with the files of images (rules 2.4, 2.8, 9.2, 9.3, 9.5). */
export const images: Cases = {
  'GET /config/osimage/{osimage}/_pack': [
    { what: 'packed', ask: [`${one}/_pack`], status: 204, touches: packed },
    {
      what: 'acknowledged at once',
      ask: [`${one}/_pack`],
      headers: prefer,
      status: 200,
      shows: queued,
      touches: packed
    },
    noTree,
    missing('/config/osimage/none/_pack')
  ],
  'POST /config/osimage/{osimage}/kernel': [
    { what: 'another kernel', ask: [`${one}/kernel`, { kernver: '6.1.0-9' }], status: 204, touches: packed },
    {
      what: 'acknowledged at once',
      ask: [`${one}/kernel`, { kernelfile: 'vmlinuz-6.1.0-9' }],
      headers: prefer,
      status: 200,
      shows: queued,
      touches: packed
    },
    {
      what: 'a kernel it lacks',
      ask: [`${one}/kernel`, { kernelfile: 'vmlinuz-7' }],
      status: 400,
      says: /idle: field "kernelfile"/
    },
    { what: 'nothing', ask: [`${one}/kernel`, {}], status: 400, says: /one of the fields/ },
    missing('/config/osimage/none/kernel', { kernver: '6' })
  ],
  'POST /config/osimage/{osimage}/_clone': [
    {
      what: 'one without a directory',
      ask: ['/config/osimage/compute/_clone', { newosimage: 'copy' }],
      status: 201,
      says: /cloned to copy/,
      files: {
        'osimage/copy.json': {
          name: 'copy',
          kernelfile: 'vmlinuz',
          initrdfile: 'initrd.img',
          imagefile: 'compute.tar.gz'
        }
      }
    },
    {
      what: 'with its directory',
      ask: [`${one}/_clone`, { newosimage: 'whole', comment: 'x' }],
      headers: prefer,
      status: 200,
      shows: queued,
      touches: [/^osimage\/whole\.json$/, /^tree\/whole\.json$/]
    },
    { what: 'without a new name', ask: [`${one}/_clone`, {}], status: 404, says: /"newosimage"/ },
    {
      what: 'a name that is taken',
      ask: [`${one}/_clone`, { newosimage: 'compute' }],
      status: 400,
      says: /compute/
    },
    missing('/config/osimage/none/_clone', { newosimage: 'x' })
  ],
  'POST /config/node/{name}/_osgrab': ofNode('_osgrab'),
  'POST /config/node/{name}/_rehearse': [
    missing('/config/node/n1/_rehearse', { osimage: 'none' }),
    {
      what: 'an unknown field',
      ask: ['/config/node/n1/_rehearse', { x: 1 }],
      status: 400,
      says: /no field "x"/
    },
    {
      what: 'a node without an address',
      ask: ['/config/node/n2/_rehearse', {}],
      status: 503,
      says: /node n2 cannot be rehearsed: /
    }
  ],
  'POST /config/node/{name}/_ospush': ofNode('_ospush'),
  'POST /config/group/{group}/_ospush': [
    ...refused('/config/group/compute/_ospush', 'compute'),
    {
      what: 'nodes that cannot be reached',
      before: loopback,
      ask: ['/config/group/loop/_ospush', { osimage: 'idle', nodry: false }],
      status: 200,
      shows: queued
    },
    {
      what: 'a group without nodes',
      ask: ['/config/group/idle/_ospush', { osimage: 'idle' }],
      status: 404,
      says: /group idle has no nodes/
    }
  ]
}
