import { join } from 'node:path'
import { type ApiRequest, type ApiRoute, ok, type Parts, param } from '../api/context.js'
import { get } from '../api/row.js'
import { bytes, object, string } from '../api/schema.js'
import { notFound, unavailable } from '../base/errors.js'
import { exists } from '../disk/file.js'
import type { Checksums } from '../image/copies/checksums.js'
import { checksumText } from '../image/copies/download.js'
import { isServed, packOf } from '../image/publish.js'
import { isBootFileOfPacks } from '../model/types/osimage.js'
import type { ControllerAuth } from './proofs.js'

/**
 * Files of images for other controllers (rules 11.19). Loaded only with etcd and not documented: only a
 * controller can prove that it asks.
 */
export function copyRoutes(
  { model, config }: Pick<Parts, 'model' | 'config'>,
  questions: ControllerAuth,
  checksums: Checksums
): ApiRoute[] {
  const asked = async (request: ApiRequest) => {
    questions.verifyRequest(request.target, request.headers)
    const name = param(request, 'file')
    const file = join(config.paths.files, name)
    if (isServed(model.view.index, name)) return { name, file }
    // The other controller may know an image that this one will hear of later.
    if (await exists(file)) throw unavailable(`no OS image names the file ${name} so far`, 'image-unusable')
    throw notFound(`no OS image names the file ${name}`, 'no-file')
  }
  /** Whether svcd made the file, which got its name when it was whole. */
  const isPacked = (name: string) =>
    model.view.get('pack', packOf(name)) !== undefined || isBootFileOfPacks(model.view, name)
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
          proof: questions.signAnswer(request.headers, checksumText({ bytes, sha256 }))
        })
      }
    })
  ]
}

/** The lines that this controller gives to another one, by path. */
export type Lines = Readonly<Record<string, () => Promise<readonly object[]>>>

/**
 * Lines of this controller for the leader: of its audit logs (rules 6.11), and its unknown machines (rules
 * 4.37). Loaded only with etcd and not documented: only a controller can prove that it asks.
 */
export function lineRoutes(told: Lines, questions: ControllerAuth): ApiRoute[] {
  return Object.entries(told).map(([path, linesOf]) =>
    get(path, {
      access: 'anyone',
      refuses: [401],
      summary: `The lines of this controller at ${path}, for another one`,
      output: object({ lines: string(), proof: string() }),
      handler: async ({ target, headers }) => {
        questions.verifyRequest(target, headers)
        const lines = JSON.stringify(await linesOf())
        return ok({ lines, proof: questions.signAnswer(headers, lines) })
      }
    })
  )
}
