import { badRequest } from '../../base/errors.js'
import { STORED } from '../../helper/containers-storage.js'

/** A container image as skopeo names it. */
export interface Reference {
  readonly text: string
  /** `registry.example.com:5000`; undefined for an archive, and for an image of this controller's storage. */
  readonly registry?: string
  /** Without tag and digest: `docker://registry.example.com:5000/site/compute`; undefined for an archive. */
  readonly repository?: string
  readonly file?: string
}

const LONGEST = 500

const part = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*'
/** The first part has a dot or a port, or is localhost: without one, skopeo means docker.io. */
const named = new RegExp(
  `^((?:docker://|${STORED}(?!\\[))` +
    '((?:[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)+|localhost|[A-Za-z0-9-]+(?=:)|\\[[0-9a-fA-F:]+\\])' +
    `(?::\\d{1,5})?)(?:/${part})+)(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`
)
const archive = /^(?:oci|docker)-archive:(\/[^:\u0000-\u001f\u007f]+)(?::[A-Za-z0-9][\w./:@-]*)?$/

/** Reads the source of an import, or the `field` of a push. Throws 400, which repeats no password. */
export function readReference(text: string, about: string, field = 'source'): Reference {
  const invalid = (what: string) => badRequest(`${about}: field "${field}": ${what}`, 'invalid-field')
  const [, repository, registry = ''] = (text.length <= LONGEST && named.exec(text)) || []
  if (repository !== undefined) {
    // skopeo takes a tag or a digest.
    if (/^:.*@/.test(text.slice(repository.length)))
      throw invalid('it has a tag and a digest: leave one of them out')
    return { text, repository, ...(text.startsWith(STORED) ? {} : { registry }) }
  }
  const file = text.length <= LONGEST ? archive.exec(text)?.[1] : undefined
  if (file !== undefined && !file.split('/').includes('..')) return { text, file }
  if (/^docker:\/\/[^/]*@/.test(text))
    throw invalid('it holds a login: put that into the file of [image] registry_auth')
  throw invalid(
    'it must be docker://REGISTRY/NAME[:TAG|@sha256:DIGEST], oci-archive:/PATH, docker-archive:/PATH, or ' +
      `${STORED}NAME[:TAG|@sha256:DIGEST] with a NAME like localhost/compute (podman images)`
  )
}
