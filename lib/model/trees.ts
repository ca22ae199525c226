import type { Docs } from './docs.js'
import type { Tx, View } from './view.js'

type TreeDoc = Docs['tree']

/** The records of directories that belong to an image. */
const treesOf = (view: View, osimage: string): TreeDoc[] =>
  [...view.names('tree')].flatMap(name => {
    const tree = view.get('tree', name)
    // A record of an earlier version does not say whose it is: the image had its name.
    return tree && (tree.osimage ?? name) === osimage && !tree.abandoned ? [tree] : []
  })

/** The directories of an image are those of its new name (rules 3.12). */
export function renameTrees(tx: Tx, from: string, to: string): void {
  for (const tree of treesOf(tx, from)) tx.put('tree', tree.name, { ...tree, osimage: to })
}

/** An image is gone: what svcd made for it is to be removed, the rest is forgotten (rules 3.12). */
export function abandonTrees(tx: Tx, osimage: string): void {
  for (const tree of treesOf(tx, osimage))
    if (tree.at === undefined) tx.remove('tree', tree.name)
    else tx.put('tree', tree.name, { ...tree, abandoned: true })
}
