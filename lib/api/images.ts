import { badRequest } from '../errors.js'
import type { KernelWish } from '../image/kernel.js'
import type { JsonValue } from '../json.js'
import { boolean, objectName } from '../model/field.js'
import { type Given, readObject, readValue } from '../model/request.js'
import { objectTypes } from '../model/types.js'
import { acknowledge, finish } from './asynchronous.js'
import { type ApiRequest, type ApiRoute, actorOf, type Parts, param } from './context.js'
import { open } from './envelope.js'
import { shapes } from './shapes.js'

/** What is done with the files of OS images: pack, kernel, clone, grab and push (rules 2.4, 2.8). */
export function imageRoutes({ images }: Parts): ApiRoute[] {
  const post = { method: 'POST', effect: 'changes', access: 'user', body: 'json' } as const
  const one = '/config/osimage/{osimage}'
  const name = (request: ApiRequest) => param(request, 'osimage')
  const given = (request: ApiRequest) =>
    readObject(objectTypes.osimage, name(request), open(request.body, 'config', ['osimage', name(request)]))
  return [
    {
      method: 'GET',
      path: `${one}/_pack`,
      effect: 'changes',
      access: 'user',
      body: 'ignored',
      codes: [200, 204, 401, 403, 404, 503],
      summary: 'Pack an OS image; with Prefer: respond-async answered at once',
      output: shapes.acknowledgement,
      handler: async request => finish(request, await images.pack(name(request), actorOf(request)), 204)
    },
    {
      ...post,
      path: `${one}/kernel`,
      codes: [200, 204, 400, 401, 403, 404, 503],
      summary: 'Give an OS image another kernel of its tree and pack it; Prefer: respond-async as for _pack',
      input: shapes.kernel,
      output: shapes.acknowledgement,
      handler: async request => {
        const wish = readKernel(name(request), given(request))
        return finish(request, await images.kernel(name(request), wish, actorOf(request)), 204)
      }
    },
    {
      ...post,
      path: `${one}/_clone`,
      codes: [200, 201, 400, 401, 403, 404, 503],
      summary:
        'Copy an OS image with its directory under the name in newosimage; Prefer: respond-async as for _pack',
      input: shapes.objects('osimage'),
      handler: async request => {
        const copy = given(request)
        const job = await images.clone(name(request), copy, actorOf(request))
        return finish(request, job, 201, `OS image ${name(request)} cloned to ${copy.newName}`)
      }
    },
    {
      ...post,
      path: '/config/node/{node}/_osgrab',
      codes: [200, 400, 401, 403, 404, 503],
      summary: "Take a node's file systems as the tree of an OS image",
      input: shapes.transferOf('node'),
      output: shapes.acknowledgement,
      handler: async request => {
        const node = param(request, 'node')
        const { osimage, dryrun } = readTransfer('node', node, request)
        return acknowledge((await images.grab(node, osimage, dryrun, actorOf(request), request.signal)).id)
      }
    },
    {
      ...post,
      path: '/config/node/{node}/_ospush',
      codes: [200, 400, 401, 403, 404, 503],
      summary: 'Make a running node like the tree of an OS image',
      input: shapes.transferOf('node'),
      output: shapes.acknowledgement,
      handler: async request => {
        const node = param(request, 'node')
        const { osimage, dryrun } = readTransfer('node', node, request)
        return acknowledge(
          (await images.pushToNode(node, osimage, dryrun, actorOf(request), request.signal)).id
        )
      }
    },
    {
      ...post,
      path: '/config/group/{group}/_ospush',
      codes: [200, 400, 401, 403, 404, 503],
      summary: 'Make the running nodes of a group like the tree of an OS image',
      input: shapes.transferOf('group'),
      output: shapes.acknowledgement,
      handler: async request => {
        const group = param(request, 'group')
        const { osimage, dryrun } = readTransfer('group', group, request)
        return acknowledge((await images.pushToGroup(group, osimage, dryrun, actorOf(request))).id)
      }
    }
  ]
}

const kernelFields = ['kernelfile', 'initrdfile', 'kernelversion']

function readKernel(image: string, { values, newName }: Given): KernelWish {
  const other =
    newName === undefined ? [...values.keys()].find(key => !kernelFields.includes(key)) : 'newosimage'
  if (other !== undefined)
    throw badRequest(`OS image ${image}: there is no field "${other}" here, only ${kernelFields.join(', ')}`)
  const wish = Object.fromEntries([...values].filter(([, value]) => value !== null))
  if (Object.keys(wish).length === 0)
    throw badRequest(`OS image ${image}: one of the fields ${kernelFields.join(', ')} is needed`)
  return wish
}

/** `{osimage, dryrun}`; `nodry` is the opposite of `dryrun` (rules 1.6). */
function readTransfer(type: 'node' | 'group', name: string, request: ApiRequest) {
  const inner: JsonValue = open(request.body, 'config', [type, name])
  if (typeof inner !== 'object' || inner === null || Array.isArray(inner))
    throw badRequest(`${type} ${name}: the body must be an object with "osimage"`)
  const where = (key: string) => `${type} ${name}: field "${key}"`
  const known = ['name', 'osimage', 'dryrun', 'nodry']
  for (const key of Object.keys(inner))
    if (!known.includes(key) && !key.startsWith('_'))
      throw badRequest(`${type} ${name}: there is no field "${key}" here, only osimage and dryrun`)
  if (inner.name !== undefined && inner.name !== name) throw badRequest(`${where('name')} is not ${name}`)
  const osimage = readValue(objectName, inner.osimage ?? null, where('osimage'))
  if (typeof osimage !== 'string') throw badRequest(`${where('osimage')} is missing`)
  const dryrun = readValue(boolean, inner.dryrun ?? null, where('dryrun'))
  const nodry = readValue(boolean, inner.nodry ?? null, where('nodry'))
  if (dryrun !== null && dryrun === nodry)
    throw badRequest(`${where('dryrun')} and field "nodry" say the opposite of each other`)
  return { osimage, dryrun: dryrun === true || nodry === false }
}
