import { FileMedium, type FileOptions } from '../../lib/store/files/medium.js'
import type { StoreOptions as AnyOptions } from '../../lib/store/start.js'
import { Store as AnyStore } from '../../lib/store/store.js'
import type { Index, Types } from '../../lib/store/types.js'

/** A store in files, with the options of both in one object. */
export type Store<T extends Types, I extends Index> = AnyStore<T, I>

export type StoreOptions<T extends Types, I extends Index> = Omit<AnyOptions<T, I>, 'medium'> & FileOptions

export const Store = {
  open: <T extends Types, I extends Index>(options: StoreOptions<T, I>): Promise<Store<T, I>> =>
    AnyStore.open<T, I>({ ...options, medium: new FileMedium(options) }),
  inspect: <T extends Types, I extends Index>(options: StoreOptions<T, I>) =>
    AnyStore.inspect<T, I>({ ...options, medium: new FileMedium(options) })
}
