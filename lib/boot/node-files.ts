import { Header } from 'tar'
import { Semaphore } from '../base/concurrency.js'
import { ServiceError, tryLater, unavailable } from '../base/errors.js'
import { strictUtf8 } from '../base/json.js'
import { type DataOf, flag, maps, text, textMap, texts } from '../base/variables.js'
import { rolesOf } from '../model/effective.js'
import { secretMask } from '../model/field.js'
import type { Model } from '../model/model.js'
import type { Secret } from '../model/secrets.js'
import { type EffectiveFile, effectiveFiles, type FileDoc } from '../model/types/file.js'
import type { NodeDoc } from '../model/types/node.js'
import { ClusterData, clusterVariables, seesCluster } from './cluster-data.js'
import { FileRenderer } from './file-renderer.js'
import { effectiveSecrets, interfaceData, nodeData } from './install.js'
import { installInterface, installVariables, nodeVariables } from './install-data.js'

const { node, hostname, domain, group, comment, vendor, assettag, url } = installVariables

const ownVariables = {
  ...{ node, hostname, domain, group, comment, vendor, assettag, url },
  osimage: text("name of the OS image, '' without one"),
  osimagetag: installVariables.osimagetag,
  distribution: text("distribution of the image, such as redhat or debian; '' without an image"),
  provision_interface: installVariables.provision_interface,
  interfaces: maps(installInterface, 'the interfaces of the node'),
  roles: texts('names of roles'),
  ntp_server: installVariables.ntp_server,
  variables: nodeVariables,
  secret: textMap("the group's secrets and the node's own, by name; one that is not UTF-8 text is left out"),
  name: text('name of the file'),
  path: text('where it stands on the node'),
  masked: flag('true when the caller is not the node itself: secrets are `********`')
} as const

/** The variables of a file's template (rules 4.25). None is ever undefined; '' means not set. */
export const fileVariables = { ...ownVariables, ...clusterVariables } as const

type FileData = DataOf<typeof ownVariables>

const mostFileBytes = 1_048_576
const mostTarBytes = 8_388_608
/** Waiting requests, of all nodes and of one. */
const mostWaiting = { all: 200, node: 4 }

/** ID for accounts that only the node knows; svc-files recognises it and goes by the name. */
const unknownId = 2_097_151

/** A file in a preview; a directory or a link has neither text nor problem. */
type FilePreview = Omit<FileDoc, 'template' | 'comment'> &
  Partial<RenderedFile> & { readonly source: 'group' | 'node' }

/** Renders the files of nodes (rules 4.25). */
export class NodeFiles {
  readonly #renderer = new FileRenderer()
  /** The worker renders for one node at a time. */
  readonly #queue = new Semaphore(1)

  readonly #cluster: ClusterData
  /** Texts that are the same for all nodes, with the cluster version they were made from. */
  #shared = new WeakMap<FileDoc, { readonly version: number; readonly text: string }>()
  #sharedBytes = 0

  constructor(private readonly o: { readonly model: Model; readonly url: string }) {
    this.#cluster = new ClusterData(o.model)
  }

  /** Invalidates texts after changes of objects that templates may see. */
  changed(changes: Parameters<ClusterData['changed']>[0]): void {
    this.#cluster.changed(changes)
  }

  close(): Promise<void> {
    return this.#renderer.close()
  }

  has(name: string): boolean {
    return this.#filesOf(name).length > 0
  }

  /**
   * Returns the files of a node as a tar, with secrets masked if `masked`. Throws 404 without such a node;
   * 503 with the file, line and node if one file cannot be rendered or is too large, since a partial tar is
   * useless. `check` is called after each wait, before the node is looked up, and throws if the caller has
   * lost access.
   */
  async tar(name: string, masked: boolean, check: () => void = () => {}): Promise<Buffer> {
    const blocks: Buffer[] = []
    let bytes = 1024
    const failed = (what: string) => unavailable(`node ${name}: ${what}`, 'template-failed')
    await this.#inTurn(name, async () => {
      check()
      for (const { file } of this.#filesOf(name)) {
        const { text = '', problem } = isRendered(file) ? await this.#render(name, file, masked) : {}
        check()
        if (problem !== undefined) throw failed(`file ${file.name} cannot be rendered: ${problem}`)
        const member = memberOf(file, Buffer.from(file.content ?? text, file.content ? 'base64' : 'utf8'))
        bytes += member.length
        if (bytes > mostTarBytes)
          throw failed(`its files have more than ${mostTarBytes} bytes with ${file.name}`)
        blocks.push(member)
      }
    })
    return Buffer.concat([...blocks, Buffer.alloc(1024)])
  }

  /** Returns a node's files with their texts, or why one has none; secrets masked. Throws 404. */
  async preview(name: string): Promise<FilePreview[]> {
    const shown: FilePreview[] = []
    await this.#inTurn(name, async () => {
      for (const { file, source } of this.#filesOf(name)) {
        const { template, comment, ...about } = { owner: 'root', group: 'root', mode: modeOf(file), ...file }
        shown.push({ ...about, source, ...(isRendered(file) ? await this.#previewFile(name, file) : {}) })
      }
    })
    return shown
  }

  /** Returns the errors of a node's `wanted` files, with secrets masked if `masked`. Throws 404. */
  async problems(name: string, wanted: (file: string) => boolean, masked: boolean) {
    const files = this.#filesOf(name).filter(({ file }) => wanted(file.name))
    const found: { name: string; problem: string }[] = []
    if (files.length > 0)
      await this.#inTurn(name, async () => {
        for (const { file } of files) {
          const { problem } = await this.#render(name, file, masked)
          if (problem !== undefined) found.push({ name: file.name, problem })
        }
      })
    return found
  }

  #filesOf(name: string): EffectiveFile[] {
    const { model } = this.o
    const { node, group } = model.effective(model.get('node', name))
    return effectiveFiles(model.view, node, group)
  }

  async #inTurn(name: string, work: () => Promise<void>): Promise<void> {
    this.o.model.get('node', name)
    const isOften = this.#queue.waiting(0, name) >= mostWaiting.node
    if (isOften || this.#queue.waiting(0) >= mostWaiting.all)
      throw tryLater(
        `the files of ${isOften ? `node ${name}` : 'many nodes'} are asked for; try again in 10 s`,
        10
      )
    await this.#queue.run(name, work)
  }

  /** Renders a file of the node being served. */
  async #render(node: string, file: FileDoc, masked: boolean): Promise<RenderedFile> {
    const { name, template = '' } = file
    const shared = this.#shared.get(file)
    if (shared && this.#cluster.isCurrent(shared.version)) return { text: shared.text }
    const cluster = seesCluster(template)
      ? await this.#cluster.text(mostTarBytes).catch((error: Error) => error)
      : undefined
    if (cluster instanceof Error) return { problem: `${name}: ${cluster.message}` }
    const data = { ...this.#data(node, file, masked) }
    const answer = await this.#renderer.render({ name, template, data, cluster })
    if ('problem' in answer) return { problem: this.#explained(node, answer.problem, data.secret) }
    const bytes = Buffer.byteLength(answer.text)
    if (bytes > mostFileBytes) return { problem: `${name}: it has ${bytes} bytes: ${mostFileBytes} at most` }
    if (cluster && answer.isShared) this.#cache(file, cluster.version, answer.text)
    return { text: answer.text }
  }

  /** Renders a file, secrets masked; an error by the real ones shows its place alone: it may quote them. */
  async #previewFile(node: string, file: FileDoc): Promise<RenderedFile> {
    const masked = await this.#render(node, file, true)
    if (!file.template?.includes('secret')) return masked
    const { problem } = await this.#render(node, file, false).catch((error: Error) => ({
      problem: error.message
    }))
    if (problem === masked.problem) return masked
    if (problem === undefined)
      return { problem: `the node gets it, but with masked secrets it cannot be shown: ${masked.problem}` }
    const [place = file.name] = /^[^:]*:\d+:\d+/.exec(problem) ?? []
    return { problem: `${place}: it cannot be rendered with the node's own secrets` }
  }

  /** Caches a text for all nodes. The cache is cleared when it exceeds the size of a tar. */
  #cache(file: FileDoc, version: number, text: string): void {
    const isFull = this.#sharedBytes + text.length > mostTarBytes
    if (isFull) this.#shared = new WeakMap()
    this.#sharedBytes = isFull ? text.length : this.#sharedBytes + text.length
    this.#shared.set(file, { version, text })
  }

  /** Returns the secrets that are text; masked as `********`, even if they cannot be decrypted. */
  #secrets(node: NodeDoc, masked: boolean): Record<string, string> {
    const texts = (secrets: readonly Secret[]) =>
      secrets.flatMap(({ name, content }) => {
        const text = strictUtf8(Buffer.from(content, 'base64'))
        return text === undefined ? [] : [[name, masked ? secretMask : text]]
      })
    const { model } = this.o
    try {
      return Object.fromEntries(texts(effectiveSecrets(model, node, false)))
    } catch (error) {
      if (!masked || !(error instanceof ServiceError)) throw error
      return Object.fromEntries(effectiveSecrets(model, node, true).map(({ name }) => [name, secretMask]))
    }
  }

  /** Adds a remedy to an error about a secret that exists but is not text. */
  #explained(node: string, problem: string, texts: Readonly<Record<string, string>>): string {
    const { model } = this.o
    const wanted = /the map has no item '([^']*)'$/.exec(problem)?.[1] ?? ''
    const has = effectiveSecrets(model, model.get('node', node), true).some(({ name }) => name === wanted)
    if (!has || Object.hasOwn(texts, wanted)) return problem
    return (
      `${problem}: secret ${wanted} is no text in UTF-8; ` +
      'give the secret itself the path of the file, its owner and mode'
    )
  }

  #data(name: string, file: FileDoc, masked: boolean): FileData {
    const { model, url } = this.o
    const target = model.effective(model.get('node', name))
    const { node, settings, image } = target
    return {
      ...nodeData(target, url),
      osimage: image?.name ?? '',
      osimagetag: settings.osimagetag,
      distribution: image ? (image.distribution ?? 'redhat') : '',
      provision_interface: settings.provision_interface,
      interfaces: target.interfaces.map(entry => interfaceData(model, entry, target)),
      roles: rolesOf(settings),
      ntp_server: model.cluster.ntp_server,
      variables: target.variables,
      secret: this.#secrets(node, masked),
      name: file.name,
      path: file.path ?? '',
      masked
    }
  }
}

/** The text of a file, or why it has none. */
type RenderedFile =
  | { readonly text: string; readonly problem?: never }
  | { readonly problem: string; readonly text?: never }

/** Whether a file is made of a template: it is no directory, no link, and no content as it is. */
const isRendered = ({ kind, content }: FileDoc) => kind === undefined && content === undefined

const modeOf = ({ kind, mode = kind === 'directory' ? '0755' : '0644' }: FileDoc) => mode

/**
 * Returns a tar member: header, content, and padding to a whole block. A directory becomes a file in it with
 * the directory's owner and mode, and a link a file with its target. So unpacking never follows a link, and
 * an older svc-files still handles the rest.
 */
function memberOf(file: FileDoc, content: Buffer): Buffer {
  const { path = '', owner = 'root', group = 'root', kind, target = '' } = file
  const at = path.lastIndexOf('/')
  const names = {
    directory: `${path}/.svc-directory`,
    link: `${path.slice(0, at)}/.svc-link.${path.slice(at + 1)}`
  }
  const text = kind === 'link' ? Buffer.from(target) : content
  const [uid, uname] = account(owner)
  const [gid, gname] = account(group)
  const header = new Header({
    path: (kind === 'directory' || kind === 'link' ? names[kind] : path).slice(1),
    type: 'File',
    mode: Number.parseInt(modeOf(file), 8),
    size: text.length,
    // Constant, so that the same files give the same tar.
    mtime: new Date(0),
    ...{ uid, uname, gid, gname }
  })
  header.encode()
  const padding = Buffer.alloc((512 - (text.length % 512)) % 512)
  return Buffer.concat([header.block as Buffer, text, padding])
}

/** Returns number and name of a user or group in a tar; the name wins if the node knows it. */
function account(given: string): [id: number, name: string] {
  if (/^\d+$/.test(given)) return [Number(given), '']
  return [given === 'root' ? 0 : unknownId, given]
}

/** Nodes tried for a failing file: each try of a template that never ends takes seconds. */
const mostTries = 3

/** Finds files that cannot be rendered, trying each for every node that has it (rules 7.7). */
export async function fileFindings(model: Model, url: string) {
  const files = new NodeFiles({ model, url })
  const failed = new Map<string, number>()
  // Secrets that cannot be decrypted are reported elsewhere.
  const problemsOf = (node: string, wanted: (file: string) => boolean) =>
    files.problems(node, wanted, false).catch((error: unknown) => {
      if (!(error instanceof ServiceError)) throw error
      return files.problems(node, wanted, true)
    })
  const found: { type: 'file'; name: string; message: string }[] = []
  try {
    for (const node of model.view.names('node')) {
      const tried = (file: string) => (failed.get(file) ?? 0) < mostTries
      for (const { name, problem } of await problemsOf(node, tried)) {
        const times = (failed.get(name) ?? 0) + 1
        failed.set(name, times)
        const last = times === mostTries ? '; it is tried for no further node' : ''
        found.push({ type: 'file', name, message: `node ${node}: ${problem}${last}` })
      }
    }
  } finally {
    await files.close()
  }
  return found
}
