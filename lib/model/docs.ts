/**
 * The stored shape of each object type. A type adds its row from its own file in types/ (`declare module`), so a new
 * type is known here without a second list.
 */
// biome-ignore lint/suspicious/noEmptyInterface: the rows stand with the types
export interface ObjectShapes {}

/** The stored shapes of what belongs to objects, without being one: tags, secrets, packs and the like; likewise. */
// biome-ignore lint/suspicious/noEmptyInterface: the rows stand with the types
export interface AttachedShapes {}

/** The name of an object type. */
export type TypeName = keyof ObjectShapes

/** Everything that is stored, by type. */
export type Docs = { [K in keyof (ObjectShapes & AttachedShapes)]: (ObjectShapes & AttachedShapes)[K] }
