import { badRequest } from '../errors.js'
import { isObject, type JsonObject, type JsonValue } from '../json.js'

function only(value: JsonObject, key: string, where: string, besides: readonly string[] = []): JsonValue {
  for (const other of Object.keys(value))
    if (other !== key && !besides.includes(other))
      throw badRequest(`${where} holds "${other}" where only "${key}" belongs`)
  if (!Object.hasOwn(value, key)) throw badRequest(`${where} holds no "${key}"`)
  return value[key] as JsonValue
}

/**
 * Opens `{root: {steps[0]: {steps[1]: inner}}}`; a body without `root` is the inner object itself
 * (rules 1.3). `besides`: keys an answer of ours carries next to the envelope (rules 1.1). Throws 400
 * when a name in the envelope is not the path's.
 */
export function open(
  body: JsonValue | undefined,
  root: 'config' | 'monitor',
  steps: readonly string[],
  besides: readonly string[] = []
): JsonValue {
  if (body === undefined) throw badRequest('the body must be JSON')
  if (!isObject(body) || !Object.hasOwn(body, root)) return body
  let where = root as string
  let inner: JsonValue = only(body, root, 'the body', besides)
  for (const step of steps) {
    if (!isObject(inner)) throw badRequest(`"${where}" in the body must be an object`)
    inner = only(inner, step, `"${where}" in the body`)
    where = `${where}.${step}`
  }
  return inner
}

/** `{"config": {type: {name: fields}}}`. */
export const config = (type: string, objects: object) => ({ config: { [type]: objects } })
