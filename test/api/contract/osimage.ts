import type { Cases, Step } from './case.js'
import { files as world } from './world.js'

const one = '/config/osimage/compute'
const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' }
const stable = {
  name: 'stable',
  osimage: 'compute',
  kernelfile: 'vmlinuz',
  initrdfile: 'initrd.img',
  imagefile: null
}
const missing = (path: string, body?: unknown): Step => ({
  what: 'a missing image',
  ask: body === undefined ? [path] : [path, body],
  status: 404,
  says: /OS image none does not exist/
})
const members = (suffix: string): readonly Step[] => [
  {
    what: 'the nodes that have it',
    ask: [`${one}/${suffix}`],
    status: 200,
    body: { config: { osimage: { compute: { members: ['n1'] } } } }
  },
  missing(`/config/osimage/none/${suffix}`)
]
const tagged: Step['before'] = [['/config/node/n1', { osimagetag: 'stable' }]]
const tagMembers = (suffix: string): readonly Step[] => [
  {
    what: 'none while all have the tag default',
    ask: [`/config/osimagetag/compute/${suffix}`],
    status: 200,
    body: { config: { osimagetag: { compute: { members: [] } } } }
  },
  {
    what: 'the nodes with another one',
    before: tagged,
    ask: [`/config/osimagetag/compute/${suffix}`],
    status: 200,
    body: { config: { osimagetag: { compute: { members: ['n1'] } } } }
  },
  missing(`/config/osimagetag/none/${suffix}`)
]
const remove: readonly Step[] = [
  {
    what: 'one that nobody uses',
    ask: ['/config/osimage/idle/_delete'],
    status: 204,
    files: { 'osimage/idle.json': null }
  },
  {
    what: 'one in use names its user',
    ask: [`${one}/_delete`],
    status: 400,
    says: /compute .* 1: group compute$/
  },
  missing('/config/osimage/none/_delete')
]
const tag = (name: string) => `${one}/osimagetag/${name}/_delete`
const removeTag: readonly Step[] = [
  {
    what: 'one that nobody uses',
    ask: [tag('stable')],
    status: 204,
    files: { 'osimagetag/compute:stable.json': null }
  },
  {
    what: 'one in use names its user',
    before: tagged,
    ask: [tag('stable')],
    status: 400,
    says: /stable .* 1: node n1$/
  },
  { what: 'default', ask: [tag('default')], status: 400, says: /default/ },
  { what: 'a missing tag', ask: [tag('none')], status: 404, says: /no tag none/ },
  missing('/config/osimage/none/osimagetag/stable/_delete')
]

/** OS image and tags (rules 1.2, 2.1, 2.4). */
export const osimage: Cases = {
  'GET /config/osimage': [
    {
      what: 'all images',
      ask: ['/config/osimage'],
      status: 200,
      shows: { config: { osimage: { compute: files, idle: { distribution: 'redhat', grab_exclude: [] } } } }
    },
    {
      what: 'names only without a token',
      ask: ['/config/osimage'],
      by: 'nobody',
      status: 200,
      body: { config: { osimage: { compute: { name: 'compute' }, idle: { name: 'idle' } } } }
    }
  ],
  'POST /config/osimage': [
    {
      what: 'is not supported',
      ask: ['/config/osimage', { x: 1 }],
      status: 400,
      says: /\/config\/osimage\/\{osimage\}/
    },
    { what: 'without a token that is not told', ask: ['/config/osimage', {}], by: 'nobody', status: 401 },
    { what: 'nor a viewer', ask: ['/config/osimage', {}], by: 'viewer', status: 403 }
  ],
  'GET /config/osimage/{osimage}': [
    {
      what: 'one image',
      ask: [one],
      status: 200,
      shows: { config: { osimage: { compute: { name: 'compute', ...files } } } }
    },
    {
      what: 'its name only without a token',
      ask: [one],
      by: 'nobody',
      status: 200,
      body: { config: { osimage: { compute: { name: 'compute' } } } }
    },
    missing('/config/osimage/none')
  ],
  'GET /config/osimage/{osimage}/_list': members('_list'),
  'GET /config/osimage/{osimage}/_member': members('_member'),
  'GET /config/osimage/{osimage}/_running': [
    {
      what: 'nodes by pack',
      ask: ['/config/osimage/compute/_running'],
      status: 200,
      shows: { config: { osimage: { compute: { running: [{ pack: 'compute.tar.gz', current: true }] } } } }
    },
    missing('/config/osimage/none/_running')
  ],
  'POST /config/osimage/{osimage}': [
    {
      what: 'created',
      ask: [
        '/config/osimage/new',
        { kernver: '6.1', grab_exclude_list: ['/proc'], tarball: 'new.tar.gz', torrent: 'x' }
      ],
      status: 201,
      says: /new/,
      files: {
        'osimage/new.json': {
          name: 'new',
          kernelversion: '6.1',
          grab_exclude: ['/proc'],
          imagefile: 'new.tar.gz'
        }
      }
    },
    {
      what: 'changed',
      ask: ['/config/osimage/idle', { path: '/srv/idle', distribution: 'debian' }],
      status: 204,
      files: { 'osimage/idle.json': { name: 'idle', distribution: 'debian', path: '/srv/idle' } }
    },
    {
      what: 'renamed: users and tags follow',
      ask: [one, { newosimage: 'main' }],
      status: 204,
      files: {
        'osimage/compute.json': null,
        'osimage/main.json': { name: 'main', ...files },
        'group/compute.json': { ...world.compute, osimage: 'main' },
        'osimagetag/compute:stable.json': null,
        'osimagetag/main:stable.json': {
          name: 'main:stable',
          osimage: 'main',
          tag: 'stable',
          order: 1,
          kernelfile: 'vmlinuz',
          initrdfile: 'initrd.img'
        }
      }
    },
    { what: 'a relative path', ask: [one, { path: 'images/x' }], status: 400, says: /"path".*absolute/ },
    {
      what: 'two spellings that differ',
      ask: [one, { kernver: '1', kernelversion: '2' }],
      status: 400,
      says: /twice/
    },
    { what: 'an empty new name', ask: [one, { newosimage: '' }], status: 404, says: /"newosimage"/ },
    missing('/config/osimage/none', { newosimage: 'x' })
  ],
  'GET /config/osimage/{osimage}/_delete': remove,
  'POST /config/osimage/{osimage}/_delete': remove,
  'POST /config/osimage/{osimage}/tag': [
    {
      what: 'it pins the files of now',
      ask: [`${one}/tag`, { config: { osimage: { compute: { tag: 'v2' } } } }],
      status: 204,
      files: {
        'osimagetag/compute:v2.json': {
          name: 'compute:v2',
          osimage: 'compute',
          tag: 'v2',
          order: 1,
          ...files
        }
      },
      later: ['/config/osimagetag/compute', { config: { osimagetag: { v2: { name: 'v2' }, stable: {} } } }]
    },
    { what: 'default', ask: [`${one}/tag`, { tag: 'default' }], status: 400, says: /default/ },
    { what: 'no tag', ask: [`${one}/tag`, {}], status: 400, says: /"tag"/ },
    missing('/config/osimage/none/tag', { tag: 'x' })
  ],
  'POST /config/osimage/{osimage}/_import': [
    { what: 'no source', ask: ['/config/osimage/new/_import', {}], status: 400, says: /"source"/ },
    {
      what: 'a login in the source, which is not repeated',
      ask: ['/config/osimage/new/_import', { source: 'docker://me:secret@registry.example.com/x' }],
      status: 400,
      says: /^OS image new: field "source": it holds a login: put that into the file of \[image\] registry_auth$/
    },
    {
      what: 'a name that is taken',
      ask: [`${one}/_import`, { source: 'docker://registry.example.com/x' }],
      status: 400,
      says: /exists already: svcctl osimage update compute/
    },
    {
      what: 'a missing archive',
      ask: ['/config/osimage/new/_import', { source: 'oci-archive:/none.tar' }],
      status: 503,
      says: /there is no file \/none.tar/
    }
  ],
  'POST /config/osimage/{osimage}/_update': [
    { what: 'an image that was not imported', ask: [`${one}/_update`, {}], status: 400, says: /"source"/ },
    missing('/config/osimage/none/_update', {})
  ],
  'POST /config/osimage/{osimage}/_push': [
    ...[{}, { target: 'docker://registry.example.com/x' }, { target: 'oci-archive:/srv/x.tar' }].map(
      body => ({
        what: 'no target, and none with a tag in a registry',
        ask: [`${one}/_push`, body] as const,
        status: 400,
        says: /field "target"/
      })
    ),
    {
      what: 'an image that is not packed',
      ask: [`${one}/_push`, { target: 'docker://registry.example.com/x:1' }],
      status: 404,
      says: /^OS image compute is not packed: svcctl osimage pack compute$/
    },
    missing('/config/osimage/none/_push', { target: 'docker://registry.example.com/x:1' })
  ],
  'GET /config/osimagetag': [
    {
      what: 'all tags',
      ask: ['/config/osimagetag'],
      status: 200,
      body: { config: { osimagetag: { stable } } }
    },
    {
      what: 'names only without a token',
      ask: ['/config/osimagetag'],
      by: 'nobody',
      status: 200,
      body: { config: { osimagetag: { stable: { name: 'stable' } } } }
    }
  ],
  'GET /config/osimagetag/{osimage}': [
    {
      what: 'the tags of an image',
      ask: ['/config/osimagetag/compute'],
      status: 200,
      body: { config: { osimagetag: { stable } } }
    },
    { what: 'none', ask: ['/config/osimagetag/idle'], status: 200, body: { config: { osimagetag: {} } } },
    missing('/config/osimagetag/none')
  ],
  'GET /config/osimagetag/{osimage}/_list': tagMembers('_list'),
  'GET /config/osimagetag/{osimage}/_member': tagMembers('_member'),
  'GET /config/osimage/{osimage}/osimagetag/{tagname}/_delete': removeTag,
  'POST /config/osimage/{osimage}/osimagetag/{tagname}/_delete': removeTag
}
