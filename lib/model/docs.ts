/** The stored shape of each object type. A type adds its own row in types/ with `declare module`. */
// biome-ignore lint/suspicious/noEmptyInterface: the rows stand with the types
export interface ObjectShapes {}

/** The same for data attached to objects: tags, secrets, packs and the like. */
// biome-ignore lint/suspicious/noEmptyInterface: the rows stand with the types
export interface AttachedShapes {}

export type TypeName = keyof ObjectShapes

export type Docs = { [K in keyof (ObjectShapes & AttachedShapes)]: (ObjectShapes & AttachedShapes)[K] }
