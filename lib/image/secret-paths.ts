import type { Model } from '../model/model.js'
import { type SecretOwner, secretsOf } from '../model/secrets.js'

/**
 * Where the secrets of a node and of its group lie on the node (rules 5.5). An image that took them along would
 * hand them to every node. Throws notFound for a node that is gone.
 */
export function secretPaths(model: Model, name: string): string[] {
  const { group } = model.get('node', name)
  const pathsOf = (type: SecretOwner, owner: string) =>
    secretsOf(model.view, model.box, type, owner, true).map(({ path }) => path)
  return [...(group === undefined ? [] : pathsOf('group', group)), ...pathsOf('node', name)]
}
