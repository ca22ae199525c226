import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { forbidden, notFound, unauthorized } from '../errors.js'
import type { Answer } from '../http/route.js'
import { type ApiRequest, type ApiRoute, type Parts, param, plain } from './context.js'
import { shapes } from './shapes.js'

const reads = { method: 'GET', effect: 'reads', body: 'ignored' } as const
const changes = { method: 'GET', effect: 'changes', body: 'ignored' } as const

/** What booting and installing machines ask for (rules 4.1, 4.6, 4.9). */
export function bootRoutes(parts: Parts): ApiRoute[] {
  const { boot, install, config } = parts
  const search = (request: ApiRequest) => {
    const script = boot.search(param(request, 'macaddress'), request.source)
    return typeof script === 'string' ? plain(script) : script.then(plain)
  }
  const manualHost = async (request: ApiRequest) => {
    const mac = request.params.macaddress
    return plain(await boot.manualHost(param(request, 'hostname'), mac, request.source))
  }
  const menu = (path: string, summary: string, script: () => string): ApiRoute => ({
    ...reads,
    path,
    access: 'anyone',
    codes: [200, 503],
    summary,
    output: shapes.text,
    handler: () => plain(script())
  })
  return [
    menu('/boot', 'The boot menu', () => boot.menu()),
    menu('/boot/short', 'The boot menu without nodes and groups', () => boot.shortMenu()),
    menu('/boot/disk', 'Boot from the local disk', () => boot.disk()),
    ...['/boot/search/{macaddress}', '/boot/search/mac/{macaddress}'].map(
      (path): ApiRoute => ({
        ...reads,
        path,
        access: 'anyone',
        codes: [200, 400, 503],
        summary: 'The boot script of the node with this MAC',
        output: shapes.text,
        handler: search
      })
    ),
    {
      ...reads,
      path: '/boot/manual/hostname/{hostname}',
      access: 'anyone',
      codes: [200, 400, 403, 503],
      summary: 'The boot script of a node chosen by name',
      output: shapes.text,
      handler: manualHost
    },
    {
      ...changes,
      path: '/boot/manual/hostname/{hostname}/{macaddress}',
      access: 'anyone',
      codes: [200, 400, 403, 503],
      summary: 'Give the MAC to a node chosen by name, and its boot script',
      output: shapes.text,
      handler: manualHost
    },
    {
      ...changes,
      path: '/boot/manual/group/{groupname}/{macaddress}',
      access: 'anyone',
      codes: [200, 400, 403, 503],
      summary: 'Give the MAC to the first free node of a group, a new one when none is, and its boot script',
      output: shapes.text,
      handler: async request => {
        const [group, mac] = [param(request, 'groupname'), param(request, 'macaddress')]
        return plain(await boot.manualGroup(group, mac, request.source))
      }
    },
    payload(parts, 'role', '/boot/roles/{role}', config.paths.roles, 'multi-user.target'),
    payload(parts, 'script', '/boot/scripts/{script}', config.paths.scripts, 'post'),
    {
      ...reads,
      path: '/boot/install/{node}',
      access: 'source',
      codes: [200, 400, 401, 404, 503],
      summary: 'The install script of a node, for that node alone',
      output: shapes.text,
      handler: async request => {
        await install.lookForLease(param(request, 'node'), request.source)
        return plain(install.script(param(request, 'node'), request.source))
      }
    },
    {
      ...reads,
      path: '/kickstart/install/{node}',
      access: 'anyone',
      codes: [200, 400, 404, 503],
      summary: 'The kickstart of a node',
      output: shapes.text,
      handler: async request => {
        await install.lookForLease(param(request, 'node'), request.source)
        return plain(install.kickstart(param(request, 'node'), request.source))
      }
    },
    {
      ...reads,
      path: '/boot/{file}',
      access: 'anyone',
      codes: [200, 206, 404, 416],
      summary: 'A kernel or initramfs that an image names, or an iPXE binary',
      output: shapes.bytes,
      handler: request => bootFile(parts, param(request, 'file'))
    },
    {
      ...reads,
      path: '/files/{tarball}',
      access: 'files',
      codes: [200, 206, 401, 403, 404, 416],
      summary: 'A packed image or its torrent',
      output: shapes.bytes,
      handler: request => packedFile(parts, request)
    }
  ]
}

function bootFile({ model, config }: Parts, name: string): Answer {
  if (model.view.index.isImageFile('boot', name)) return { status: 200, file: join(config.paths.files, name) }
  if (config.boot.ipxe_directory === '')
    throw notFound(`no OS image names the boot file ${name}, and [boot] ipxe_directory is not set`)
  return { status: 200, file: join(config.boot.ipxe_directory, name) }
}

/**
 * Packed images go to addresses in a configured network, to loopback, or with a token (rules 4.9). From elsewhere a
 * node's token is good for what that node installs (4.8), also where its image is another one by now.
 */
function packedFile({ model, boot, images, config }: Parts, request: ApiRequest): Answer {
  const { source, caller } = request
  const name = param(request, 'tarball')
  const pack = name.replace(/\.torrent$/, '')
  if (!source.loopback && !boot.isInside(source)) {
    if (caller.kind === 'anonymous')
      throw unauthorized(`${source.address} lies in no configured network; a token is needed`)
    if (
      caller.kind === 'node' &&
      !boot.installs(caller.node, pack) &&
      !images.installing.isGiven(caller.node, pack)
    )
      throw forbidden(`${name} is not the image of node ${caller.node}`)
  }
  if (!model.view.index.isImageFile('pack', pack))
    throw notFound(`no OS image names the packed image ${name}`)
  return { status: 200, file: join(config.paths.files, name) }
}

/** `{target, script}` of a file below a directory; `# target: <text>` in its first line (rules 4.10). */
function payload(
  { boot }: Parts,
  what: 'role' | 'script',
  path: string,
  directory: string,
  target: string
): ApiRoute {
  return {
    ...reads,
    path,
    access: 'node',
    codes: [200, 401, 403, 404, 503],
    summary: `A ${what}: where it belongs, and its text in base64`,
    output: shapes.payload,
    handler: async request => {
      const name = param(request, what)
      const { caller } = request
      if (caller.kind === 'node' && what === 'role' && !boot.rolesOf(caller.node).includes(name))
        throw forbidden(`node ${caller.node} does not have the role ${name}`)
      const content = await readFile(join(directory, name)).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT' || error.code === 'EISDIR') throw notFound(`there is no ${what} ${name}`)
        throw error
      })
      const [first = ''] = content.toString('utf8').split('\n', 1)
      const given = /^# target: *(\S.*?)\s*$/.exec(first)?.[1]
      return { status: 200, body: { target: given ?? target, script: content.toString('base64') } }
    }
  }
}
