import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { badRequest, forbidden, notFound, unauthorized } from '../base/errors.js'
import { seedFiles } from '../boot/install.js'
import type { Answer } from '../http/route.js'
import { packOf, packWith } from '../image/publish.js'
import { generationOf } from '../model/types/node.js'
import { signedLoaders, treeDirectory } from '../services/services.js'
import { type ApiRequest, type ApiRoute, done, ok, type Parts, param, renewedToken } from './context.js'
import { get, script } from './row.js'
import { bytes, object, ref, string } from './schema.js'

const payloadSchema = object({ target: string(), script: string('base64') }, ['target', 'script'])

/** Files named by their checksum never change: every cache may keep them. */
const unchanging = { 'Cache-Control': 'public, max-age=31536000, immutable' }

/** The state of a node whose system is up but not well; undefined if it is well or sends none. */
function unhealthyState(query: URLSearchParams): string | undefined {
  const word = query.get('state') ?? ''
  if (!['degraded', 'starting'].includes(word)) return undefined
  const units = (query.get('units') ?? '').split(',').filter(unit => /^[\w@:.\\-]{1,255}$/.test(unit))
  return `running.${word}${units.length > 0 ? `: ${units.slice(0, 20).join(', ').slice(0, 900)}` : ''}`
}

/** Scripts for machines whose node is found, or chosen at the console (rules 4.1, 4.3, 4.4). */
function consoleRoutes({ boot, trace }: Parts): ApiRoute[] {
  const manualHost = (request: ApiRequest) =>
    boot.manualHost(param(request, 'hostname'), request.params.macaddress, request)
  return [
    ...(
      [
        ['/boot', 'The boot menu', 'menu', () => boot.menu()],
        ['/boot/short', 'The boot menu without nodes and groups', 'menu', () => boot.shortMenu()],
        ['/boot/disk', 'Boot from the local disk', 'disk', () => boot.disk()]
      ] as const
    ).map(([path, summary, asked, text]) =>
      script(path, 'anyone', {
        summary,
        text: request => {
          trace.asked(asked, request)
          return text()
        }
      })
    ),
    ...['/boot/search/{macaddress}', '/boot/search/mac/{macaddress}'].map(path =>
      script(path, 'machine', {
        summary: 'The boot script of the node with this MAC',
        text: request => boot.search(param(request, 'macaddress'), request)
      })
    ),
    script('/boot/manual/hostname/{hostname}', 'machine', {
      summary: 'The boot script of a node chosen by name',
      text: manualHost
    }),
    script('/boot/manual/hostname/{hostname}/{macaddress}', 'machine', {
      changes: true,
      summary: 'Give the MAC to a node chosen by name, and its boot script',
      text: manualHost
    }),
    script('/boot/manual/group/{groupname}/{macaddress}', 'machine', {
      changes: true,
      summary: 'Give the MAC to the first free node of a group, or to a new one, and its boot script',
      text: request => boot.manualGroup(param(request, 'groupname'), param(request, 'macaddress'), request)
    })
  ]
}

/** Routes for booting and installing machines (rules 4.1, 4.6, 4.9). */
export function bootRoutes(parts: Parts): ApiRoute[] {
  return [...consoleRoutes(parts), ...installRoutes(parts), ...payloadRoutes(parts), ...fileRoutes(parts)]
}

/** The scripts that install a node, and its report that its system is up. */
function installRoutes(parts: Parts): ApiRoute[] {
  const { install, library } = parts
  return [
    script('/boot/install/{node}', 'source', {
      refuses: [403],
      summary: 'The install script of a node, for that node alone',
      text: request => install.script(param(request, 'node'), request)
    }),
    get('/boot/library/{sha256}', 'anyone', {
      summary: 'The functions of the install script that are the same for every node',
      output: bytes,
      handler: request => {
        const sha256 = param(request, 'sha256')
        const text = library.text(sha256)
        if (!text)
          throw notFound(
            `there is no library ${sha256}: the node's install script names the present one`,
            'no-file'
          )
        const headers = { ...unchanging, ETag: `"${sha256}"` }
        return { status: 200, bytes: text, type: 'text/plain; charset=utf-8', headers }
      }
    }),
    get('/boot/running/{node}/{tarball}', 'source', {
      changes: true,
      query: {
        state: string('what systemd says of the system: running, degraded, starting'),
        units: string('the units that failed or still start, with commas between them')
      },
      output: ref('message'),
      summary: "The node's system tells that it is up, and which packed image it was made from",
      handler: request => reportRunning(parts, request)
    }),
    script('/kickstart/install/{node}', 'machine', {
      summary: 'The kickstart of a node, or what its installer has in its place: a preseed, an autoinstall',
      text: request => install.kickstart(param(request, 'node'), request)
    }),
    ...seedFiles.map(file =>
      script(`/boot/cloud-init/{node}/${file}`, 'source', {
        summary: `The ${file} of a node for cloud-init (NoCloud), for that node alone`,
        text: request => {
          const { caller } = request
          const node = param(request, 'node')
          return install.seed(node, file, request, caller.kind === 'node' && caller.node === node)
        }
      })
    )
  ]
}

/** Roles and scripts, each with the place where it belongs (rules 4.10). */
function payloadRoutes({ boot, config }: Parts): ApiRoute[] {
  return [
    get('/boot/roles/{role}', 'node', {
      refuses: [403],
      summary: 'A role: where it belongs, and its text in base64',
      output: payloadSchema,
      handler: request => {
        const { caller } = request
        const role = param(request, 'role')
        if (caller.kind === 'node' && !boot.rolesOf(caller.node).includes(role))
          throw forbidden(`node ${caller.node} does not have the role ${role}`, 'node-not-permitted')
        return payload(join(config.paths.roles, role), `role ${role}`, 'multi-user.target')
      }
    }),
    get('/boot/scripts/{script}', 'node', {
      summary: 'A script: where it belongs, and its text in base64',
      output: payloadSchema,
      handler: request => {
        const name = param(request, 'script')
        return payload(join(config.paths.scripts, name), `script ${name}`, 'post')
      }
    })
  ]
}

/** The files of a node, boot files and packed images. */
function fileRoutes(parts: Parts): ApiRoute[] {
  const loaders = loadersIn(parts.config)
  return [
    get('/boot/files/{node}', 'node', {
      summary: 'The files of a node as a tar, for that node; for anybody else its secrets are masked',
      output: bytes,
      handler: request => nodeTar(parts, request)
    }),
    get('/boot/{file}', 'anyone', {
      answers: [200, 206],
      refuses: [416],
      summary: 'A kernel or initramfs that an image names, or an iPXE binary',
      output: bytes,
      handler: request => bootFile(parts, request, loaders)
    }),
    get('/files/{tarball}', 'files', {
      answers: [200, 206],
      refuses: [403, 416],
      summary: 'A packed image or its torrent',
      output: bytes,
      handler: request => packedFile(parts, request)
    })
  ]
}

/** Notes that a node's system is up, and its state, unless it was reported in another way. */
async function reportRunning({ install, status }: Parts, request: ApiRequest): Promise<Answer> {
  const [node, pack] = [param(request, 'node'), param(request, 'tarball')]
  const told = request.query.get('state') ?? 'running'
  if (told === 'maintenance')
    throw badRequest(`node ${node}: a system in rescue or emergency mode is not up`, 'unknown-query')
  await install.runs(node, pack, request)
  // Keeps a state that was reported in another way.
  const before = status.state(node) ?? ''
  // Scripts of older versions send no state; an unknown one changes nothing.
  const isCured = told === 'running' && before.startsWith('running.')
  const state = unhealthyState(request.query) ?? (isCured ? 'running' : before)
  if (state !== before) await status.report(node, state)
  return done(200, `node ${node} runs ${pack}: noted`)
}

/** The files of a node as a tar, with a new token for a node whose own expires. */
async function nodeTar(parts: Parts, request: ApiRequest): Promise<Answer> {
  const { model, nodeFiles, trust } = parts
  const { caller } = request
  const node = param(request, 'node')
  const own = caller.kind === 'node' ? caller : undefined
  // While it waited for its turn the name may have become another node's, with its own secrets.
  const bytes = await nodeFiles.tar(node, !own, () => {
    const isCurrent = own && generationOf(model.view, node) === own.generation && trust.takes(node, own.proof)
    if (own && !isCurrent)
      throw unauthorized(
        `the token in x-access-tokens is void: node ${node} was deleted or renamed meanwhile, or has to ` +
          'prove itself',
        'invalid-token'
      )
  })
  return { status: 200, bytes, type: 'application/x-tar', headers: renewedToken(parts, caller) }
}

/** Returns the files that UEFI HTTP boot fetches: shim, and what shim fetches beside itself (rules 4.44). */
const loadersIn = (config: Parts['config']): ReadonlySet<string> =>
  new Set(config.tftp.server === 'none' ? [] : signedLoaders(config).map(({ name }) => name))

const autoexec = 'autoexec.ipxe'

function bootFile({ model, trace, config }: Parts, request: ApiRequest, loaders: ReadonlySet<string>) {
  const name = param(request, 'file')
  if (loaders.has(name)) return { status: 200, file: join(treeDirectory(config), name) }
  const isNamed = model.view.index.isImageFile('boot', name)
  const directory = isNamed ? config.paths.files : config.boot.ipxe_directory
  // iPXE 2.0 asks for this file before each boot, whether it exists or not.
  const ended = name === autoexec ? undefined : trace.bootFile(name, directory !== '', request)
  if (directory === '')
    throw notFound(`no OS image names the boot file ${name}, and [boot] ipxe_directory is not set`, 'no-file')
  return { status: 200, file: join(directory, name), ...(ended ? { onEnd: ended } : {}) }
}

/**
 * Sends a packed image to configured networks, to loopback, or with a token (rules 4.9). A node's token is
 * good for the image that it is installing (rules 4.8), even if its object names another one meanwhile.
 */
function packedFile({ model, boot, images, trace, config }: Parts, request: ApiRequest): Answer {
  const { source, caller } = request
  const name = param(request, 'tarball')
  if (!source.loopback && !boot.isInside(source)) {
    if (caller.kind === 'anonymous')
      throw unauthorized(
        `${source.address} lies in no configured network; a token is needed`,
        'wrong-address'
      )
    const pack = packWith(model.view, packOf(name))
    if (
      caller.kind === 'node' &&
      !boot.installs(caller.node, pack) &&
      !images.installing.isGiven(caller.node, pack)
    )
      throw forbidden(`${name} is not the image of node ${caller.node}`, 'node-not-permitted')
  }
  if (!model.view.index.isImageFile('pack', packOf(name)))
    throw notFound(`no OS image names the packed image ${name}`, 'no-file')
  const ended = trace.packedFile(name, request)
  return { status: 200, file: join(config.paths.files, name), ...(ended ? { onEnd: ended } : {}) }
}

/** `{target, script}` of a file; its first line may be `# target: <text>` (rules 4.10). Throws 404. */
async function payload(file: string, what: string, target: string): Promise<Answer> {
  const content = await readFile(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'EISDIR') throw notFound(`there is no ${what}`, 'no-file')
    throw error
  })
  const [first = ''] = content.toString('utf8').split('\n', 1)
  const given = /^# target: *(\S.*?)\s*$/.exec(first)?.[1]
  return ok({ target: given ?? target, script: content.toString('base64') })
}
