import type { Docs } from './docs.js'
import type { Model } from './model.js'
import { attachedTypes, sealedKinds, typeNames } from './types.js'

/** A piece of an answer is made in one turn of the event loop. */
const PIECE_CHARACTERS = 65_536

/**
 * All objects of this moment, as their files hold them: secrets sealed (rules 11.12). A JSON object in pieces: the path of
 * the file in the state directory → its text. What is changed later is not in it, however long it takes to send.
 */
export function snapshot({ view, box }: Model): Iterable<string> {
  const kinds = sealedKinds(box)
  const types = [...typeNames, ...Object.keys(attachedTypes)] as (keyof Docs)[]
  // Objects are never changed, only replaced: a list of them is the whole state.
  const all = types.flatMap(type => view.names(type).map(name => [type, name, view.get(type, name)] as const))
  const encode = (type: keyof Docs, doc: object) =>
    (kinds[type] as { encode(doc: object): string }).encode(doc)
  return {
    *[Symbol.iterator]() {
      let piece = '{"snapshot":{'
      let separator = ''
      for (const [type, name, doc] of all) {
        if (!doc) continue
        piece += `${separator}${JSON.stringify(`${type}/${name}.json`)}:${JSON.stringify(encode(type, doc))}`
        separator = ','
        if (piece.length < PIECE_CHARACTERS) continue
        yield piece
        piece = ''
      }
      yield `${piece}}}`
    }
  }
}
