import { Header } from 'tar'
import { Semaphore } from '../concurrency.js'
import { tryLater, unavailable } from '../errors.js'
import { utf8 } from '../json.js'
import { rolesOf } from '../model/effective.js'
import { hidden } from '../model/field.js'
import type { Model } from '../model/model.js'
import { type FileDoc, type FileInForce, filesInForce } from '../model/types/file.js'
import { type DataOf, flag, maps, text, textMap, texts } from '../variables.js'
import { FileRenderer } from './file-renderer.js'
import { interfaceData, nodeData, secretsInForce } from './install.js'
import { installInterface, installVariables, nodeVariables } from './install-data.js'

const { node, hostname, domain, group, comment, vendor, assettag, url } = installVariables

/** The variables of a file's template (rules 4.25). None is ever undefined; '' means that a value is not set. */
export const fileVariables = {
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

/** What the template of a file sees. */
type FileData = DataOf<typeof fileVariables>

/** Bytes of one file and of a tar. */
const mostFileBytes = 1_048_576
const mostTarBytes = 8_388_608
/** Requests for files that have not begun, of all nodes and for one of them. */
const mostWaiting = { all: 200, node: 4 }

/** A uid and a gid for names that a node does not know: nobody's, so that svc-files sees it. */
const unknownId = 2_097_151

export interface NodeFilesOptions {
  readonly model: Model
  /** Node-facing URL. */
  readonly url: string
}

/** A file as a preview shows it: with its text, or with the reason why there is none. */
export interface ShownFile extends Omit<FileDoc, 'template' | 'comment'> {
  readonly source: 'group' | 'node'
  readonly text?: string
  readonly problem?: string
}

/** The files that svcd renders for nodes (rules 4.25). */
export class NodeFiles {
  readonly #renderer = new FileRenderer()
  /** The thread renders for one node at a time; those that wait come in turn. */
  readonly #turns = new Semaphore(1)

  constructor(private readonly o: NodeFilesOptions) {}

  close(): Promise<void> {
    return this.#renderer.close()
  }

  /** Whether a node has any. */
  has(name: string): boolean {
    return this.#filesOf(name).length > 0
  }

  /**
   * The files of a node as a tar, `masked` with its secrets masked. Throws 404 without such a node; 503 that names the file,
   * the line and the node where one cannot be rendered or is too large: then there is no tar at all. `check` throws when
   * whoever asked may no longer have it: it is called after each wait, before anything of the node is looked up.
   */
  async tar(name: string, masked: boolean, check: () => void = () => {}): Promise<Buffer> {
    const blocks: Buffer[] = []
    let bytes = 1024
    await this.#inTurn(name, async render => {
      check()
      for (const { file } of this.#filesOf(name)) {
        const { text = '', problem } = await render(file, masked)
        check()
        if (problem !== undefined)
          throw unavailable(`node ${name}: file ${file.name} cannot be rendered: ${problem}`)
        const member = memberOf(file, Buffer.from(text))
        bytes += member.length
        if (bytes > mostTarBytes)
          throw unavailable(`node ${name}: its files have more than ${mostTarBytes} bytes with ${file.name}`)
        blocks.push(member)
      }
    })
    return Buffer.concat([...blocks, Buffer.alloc(1024)])
  }

  /** What the tar would hold, with secrets masked; files that cannot be rendered say why. Throws 404. */
  async preview(name: string): Promise<ShownFile[]> {
    const shown: ShownFile[] = []
    await this.#inTurn(name, async render => {
      for (const { file, source } of this.#filesOf(name)) {
        const { path, owner = 'root', group = 'root', mode = '0644' } = file
        const about = { name: file.name, ...(path === undefined ? {} : { path }), owner, group, mode, source }
        shown.push({ ...about, ...(await render(file, true)) })
      }
    })
    return shown
  }

  /** Why files of a node cannot be rendered, of those that are `wanted`; `masked` with its secrets masked. Throws 404. */
  async problems(
    name: string,
    wanted: (file: string) => boolean,
    masked: boolean
  ): Promise<{ name: string; problem: string }[]> {
    const files = this.#filesOf(name).filter(({ file }) => wanted(file.name))
    const found: { name: string; problem: string }[] = []
    if (files.length > 0)
      await this.#inTurn(name, async render => {
        for (const { file } of files) {
          const { problem } = await render(file, masked)
          if (problem !== undefined) found.push({ name: file.name, problem })
        }
      })
    return found
  }

  #filesOf(name: string): FileInForce[] {
    const { model } = this.o
    const { node, group } = model.effective(model.get('node', name))
    return filesInForce(model.view, node, group)
  }

  async #inTurn(
    name: string,
    work: (
      render: (
        file: FileDoc,
        masked: boolean
      ) => Promise<{ text: string; problem?: never } | { problem: string; text?: never }>
    ) => Promise<void>
  ): Promise<void> {
    this.o.model.get('node', name)
    const isOften = this.#turns.waiting(0, name) >= mostWaiting.node
    if (isOften || this.#turns.waiting(0) >= mostWaiting.all)
      throw tryLater(
        `the files of ${isOften ? `node ${name}` : 'many nodes'} are asked for; try again in 10 s`,
        10
      )
    await this.#turns.run(name, () =>
      work(async (file, masked) => {
        const { name: fileName, template = '' } = file
        const data = { ...this.#data(name, file, masked) }
        const answer = await this.#renderer.render({ name: fileName, template, data })
        if ('problem' in answer) return answer
        const bytes = Buffer.byteLength(answer.text)
        if (bytes <= mostFileBytes) return answer
        return { problem: `${fileName}: it has ${bytes} bytes: ${mostFileBytes} at most` }
      })
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
      secret: Object.fromEntries(
        secretsInForce(model, node, masked).flatMap(({ name, content }) => {
          const text = masked ? hidden : utf8(Buffer.from(content, 'base64'))
          return text === undefined ? [] : [[name, text]]
        })
      ),
      name: file.name,
      path: file.path ?? '',
      masked
    }
  }
}

/** A file in a tar: its head, its bytes, and zeros up to a whole block. */
function memberOf(
  { path = '', owner = 'root', group = 'root', mode = '0644' }: FileDoc,
  text: Buffer
): Buffer {
  const [uid, uname] = account(owner)
  const [gid, gname] = account(group)
  const header = new Header({
    path: path.slice(1),
    type: 'File',
    mode: Number.parseInt(mode, 8),
    size: text.length,
    // The same files give the same tar.
    mtime: new Date(0),
    ...{ uid, uname, gid, gname }
  })
  header.encode()
  const padding = Buffer.alloc((512 - (text.length % 512)) % 512)
  return Buffer.concat([header.block as Buffer, text, padding])
}

/** The number and the name of a user or a group for a tar; the name decides where the node knows it. */
function account(given: string): [id: number, name: string] {
  if (/^\d+$/.test(given)) return [Number(given), '']
  return [given === 'root' ? 0 : unknownId, given]
}
