import { join } from 'node:path'
import type { ControllerQuestions } from '../auth/controller-questions.js'
import { exists } from '../disk/missing.js'
import { notFound, unavailable } from '../errors.js'
import { bootFilesOfPacks } from '../image/boot-files.js'
import type { Checksums } from '../image/copies/checksums.js'
import { checksumText } from '../image/copies/download.js'
import { isServed, packOf } from '../image/publish.js'
import { type ApiRequest, type ApiRoute, ok, type Parts, param } from './context.js'
import { get } from './row.js'
import { bytes, object, string } from './schema.js'

/**
 * The files of images, for the other controllers that share the objects (rules 11.19). They are loaded only where there may be
 * others, and stand in no document: who asks has to prove to be a controller.
 */
export function copyRoutes(
  { model, config }: Pick<Parts, 'model' | 'config'>,
  questions: ControllerQuestions,
  checksums: Checksums
): ApiRoute[] {
  const asked = async (request: ApiRequest) => {
    questions.check(request.target, request.headers)
    const name = param(request, 'file')
    const file = join(config.paths.files, name)
    if (isServed(model.view.index, name)) return { name, file }
    // Who asks has heard of an image that names it; this controller may hear it later.
    if (await exists(file)) throw unavailable(`no OS image names the file ${name} so far`)
    throw notFound(`no OS image names the file ${name}`)
  }
  /** Whether svcd made it: such a file gets its name when it is whole. */
  const isPacked = (name: string) =>
    model.view.get('pack', packOf(name)) !== undefined || bootFilesOfPacks(model.view).has(name)
  return [
    get('/copies/{file}', {
      access: 'anyone',
      answers: [200, 206],
      refuses: [401, 416],
      summary: 'A file of an image, for another controller',
      output: bytes,
      handler: async request => ({ status: 200, file: (await asked(request)).file })
    }),
    get('/copies/{file}/checksum', {
      access: 'anyone',
      refuses: [401],
      summary: 'Its size and its checksum, for another controller',
      output: object({ bytes: { type: 'integer' }, sha256: string(), proof: string() }),
      handler: async request => {
        const { name, file } = await asked(request)
        const { bytes, sha256 } = await checksums.of(file, isPacked(name))
        return ok({
          bytes,
          sha256,
          proof: questions.proofOf(request.headers, checksumText({ bytes, sha256 }))
        })
      }
    })
  ]
}
