import { badRequest, refusalsOf } from '../../base/errors.js'
import { compileTemplate } from '../../template/compiler.js'
import { TemplateError } from '../../template/errors.js'
import {
  base64,
  checked,
  comment,
  freeText,
  isPath,
  oneOf,
  passing,
  type Stored,
  type Table,
  ValueError
} from '../field.js'
import { named, type ObjectType } from '../object-type.js'
import type { View } from '../stored.js'

/** Bytes of a template: a posted one is compiled on the event loop. */
const mostTemplateBytes = 65_536
/** Bytes of a content that is no template. The object, and its file, hold it as a whole. */
const mostContentBytes = 524_288
const mostTargetBytes = 1024
/** The limits of a tar header without an extension, which not every tar reads. */
const mostDirectoryBytes = 155
const mostNameBytes = 100

/** Directories of the system, volatile ones, and svcd's own. */
const closed = ['/dev', '/proc', '/sys', '/run', '/etc/svc']

const CONTROL = /[\u0000-\u001f\u007f]/

/** The path of a file on a node: absolute and in its shortest form. */
const nodePath = checked(
  'the absolute path of a file, without //, . and .. and without control characters',
  value => {
    const parts = value.split('/').slice(1)
    if (!isPath(value) || CONTROL.test(value) || parts.some(part => part === '' || part === '.'))
      return undefined
    const name = parts.pop() ?? ''
    if (Buffer.byteLength(name) > mostNameBytes || Buffer.byteLength(parts.join('/')) > mostDirectoryBytes)
      throw new ValueError(
        `is too long: a name has ${mostNameBytes} bytes at most, ` +
          `the directories before it ${mostDirectoryBytes}`
      )
    const at = closed.find(directory => value === directory || value.startsWith(`${directory}/`))
    if (at !== undefined) throw new ValueError(`is in ${at}, where no file of an admin belongs`)
    return value
  }
)

export const account = checked(
  'a name of 1 to 31 letters, digits, dots, underscores and hyphens, or a number below 2097151',
  value => {
    if (/^\d{1,7}$/.test(value) && Number(value) < 2_097_151) return String(Number(value))
    return /^[A-Za-z_][A-Za-z0-9_.-]{0,30}$/.test(value) ? value : undefined
  }
)

export const fileMode = checked('three or four octal digits, such as "0644" or "2755"', digits => {
  if (!/^[0-7]{3,4}$/.test(digits)) return undefined
  const bits = Number.parseInt(digits, 8)
  if ((bits & 0o4100) === 0o4000 || (bits & 0o2010) === 0o2000)
    throw new ValueError(`is ${digits}: setuid and setgid mean nothing where nobody may run the file`)
  return digits.padStart(4, '0')
})

const linkTarget = passing(
  `a path of 1 to ${mostTargetBytes} bytes, without control characters`,
  value => value !== '' && Buffer.byteLength(value) <= mostTargetBytes && !CONTROL.test(value)
)

function contentLimit(text: string): string | undefined {
  const { length } = Buffer.from(text, 'base64')
  return length > mostContentBytes ? `has ${length} bytes: ${mostContentBytes} at most` : undefined
}

/** Returns why a template is too long or does not compile. */
function templateLimit(text: string): string | undefined {
  const bytes = Buffer.byteLength(text)
  if (bytes > mostTemplateBytes) return `has ${bytes} bytes: ${mostTemplateBytes} at most`
  try {
    compileTemplate(text, 'template', () => undefined)
    return undefined
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    return `is no template: line ${error.line}, column ${error.column}: ${error.reason}`
  }
}

const fields = [
  {
    name: 'path',
    type: nodePath,
    // svcd's tars hold directories and links under such names (lib/boot/node-files.ts).
    limit: path =>
      path.includes('/.svc-') ? "has a name that begins with .svc-, which is svcd's own" : undefined,
    meaning: 'where it stands on a node'
  },
  { name: 'owner', type: account, default: 'root', meaning: 'its user on the node, by name or number' },
  { name: 'group', type: account, default: 'root', meaning: 'its group on the node, by name or number' },
  { name: 'mode', type: fileMode, default: '0644', meaning: 'who may read, write and run it' },
  {
    name: 'template',
    type: freeText,
    default: '',
    limit: templateLimit,
    meaning: 'its text, a template (docs/files.md)'
  },
  comment,
  {
    name: 'kind',
    type: oneOf('file', 'directory', 'link'),
    default: 'file',
    meaning: 'what stands there: a directory may hold more, a link leads to its target'
  },
  { name: 'target', type: linkTarget, meaning: 'where a link leads' },
  {
    name: 'content',
    type: base64,
    limit: contentLimit,
    meaning: 'its bytes in base64, in the place of a template'
  }
] as const satisfies Table

export type FileDoc = { readonly name: string } & Stored<typeof fields>

declare module '../docs.js' {
  interface ObjectShapes {
    file: FileDoc
  }
}

/** A file that svcd renders for nodes (rules 4.25). */
export const file: ObjectType<FileDoc> = {
  type: 'file',
  title: 'file',
  parameter: 'filename',
  fields,
  newName: ['newfilename'],
  omittedFields: doc => (['kind', 'target', 'content'] as const).filter(name => doc[name] === undefined),
  ...named,
  *checks(_view, doc, title) {
    yield () => {
      const { path, kind = 'file', target, template = '', content } = doc
      const no = refusalsOf(title)
      if (path === undefined) throw no('field "path" is missing', 'missing-field')
      if (kind === 'link' && target === undefined) throw no('field "target" is missing: a link needs it')
      const owners = { target: 'link', template: 'file', content: 'file' } as const
      for (const field of ['target', 'template', 'content'] as const)
        if (doc[field] && kind !== owners[field])
          throw no(`field "${field}" belongs to a ${owners[field]}, not to a ${kind}`)
      if (template !== '' && content !== undefined)
        throw no('field "content" and "template" do not go together')
      // Directories and links have longer names in the tar.
      const [name = ''] = path.split('/').slice(-1)
      const over = kind === 'link' ? Buffer.byteLength(name) + 10 - mostNameBytes : 0
      const deep = kind === 'directory' ? Buffer.byteLength(path) - 1 - mostDirectoryBytes : 0
      if (over > 0 || deep > 0) throw no(`field "path" is too long by ${over + deep} bytes for a ${kind}`)
    }
  },
  /** Checks a new path against the other files of each group and node. */
  *checkChange(tx, before, after) {
    if (before.path === after.path) return
    for (const { type, name } of tx.index.referrers({ type: 'file', name: after.name })) {
      yield
      if (type === 'group' || type === 'node') checkAttached(tx, tx.get(type, name)?.files, `${type} ${name}`)
    }
  }
}

/** Throws 400 if two files of one group or node have the same path; the message begins with `title`. */
export function checkAttached(view: View, files: readonly string[] = [], title: string): void {
  const at = new Map<string, string>()
  for (const name of files) {
    const { path = '' } = view.get('file', name) ?? {}
    const other = at.get(path)
    if (other !== undefined && path !== '')
      throw badRequest(
        `${title}: field "files": ${other} and ${name} have the same path ${path}`,
        'already-exists'
      )
    at.set(path, name)
  }
}

/** A file of a node, and the level that names it. */
export interface EffectiveFile {
  readonly file: FileDoc
  readonly source: 'group' | 'node'
}

/** Returns the files of a node in `group`, by path; a node's own file replaces its group's (rules 4.25). */
export function effectiveFiles(
  view: View,
  node: { readonly files?: readonly string[] },
  group: { readonly files?: readonly string[] } | undefined
): EffectiveFile[] {
  const found = new Map<string, EffectiveFile>()
  for (const [source, names = []] of [
    ['group', group?.files],
    ['node', node.files]
  ] as const)
    for (const name of names) {
      const doc = view.get('file', name)
      if (doc?.path !== undefined) found.set(doc.path, { file: doc, source })
    }
  return [...found.values()].sort((a, b) => ((a.file.path ?? '') < (b.file.path ?? '') ? -1 : 1))
}
