/** Serial numbers, without blanks and signs, that makers leave in many machines. */
const JUNK = new RegExp(
  '^(?:(?:to|will)befilled(?:byoem)?|' +
    '(?:system|chassis|product|baseboard|base|board|mb)?(?:serial|asset)?(?:number|no|tag)?|' +
    'not?(?:ne|a|applicable|available|specified|provided|present|set|asset.*)?|null|undefined|unknown|' +
    'unspecified|invalid|empty|blank|oem|default(?:string)?|(?:oem)?string|test|todo|(.)\\1*|' +
    '0?1234567(?:8(?:90?)?)?.?|0123456789(?:abcdef)?)$'
)
/** UUIDs that boards of several makers share. */
const SHARED_UUID = /^(?:03000200040005000006000700080009|12345678123456781234567812345678|f{32})$/

/** Returns what a serial number is compared by; undefined for one that names no machine. */
export function serialKey(serial: string | undefined): string | undefined {
  const text = (serial ?? '').replace(/\s+/g, '').toLowerCase()
  const bare = text.replace(/[^a-z0-9]/g, '')
  return bare.length < 3 || JUNK.test(bare) ? undefined : text
}

/** Returns a UUID's key, the same for either order of its first bytes; undefined if it names no machine. */
export function uuidKey(uuid: string | undefined): string | undefined {
  const digits = (uuid ?? '').replace(/[-{}\s]/g, '').toLowerCase()
  if (!/^[\da-f]{32}$/.test(digits) || new Set(digits).size < 4) return undefined
  const swap = (from: number, to: number) => digits.slice(from, to).match(/../g)?.reverse().join('') ?? ''
  const swapped = `${swap(0, 8)}${swap(8, 12)}${swap(12, 16)}${digits.slice(16)}`
  const isShared = [digits, swapped].some(one => SHARED_UUID.test(one))
  return isShared ? undefined : digits < swapped ? digits : swapped
}

/** A serial number and a UUID. */
export interface MachineIds {
  readonly serial?: string
  readonly uuid?: string
}

/** Returns the lookup keys of a serial number and a UUID; none for those that name no machine. */
export function machineKeys({ serial, uuid }: MachineIds): string[] {
  const [ofSerial, ofUuid] = [serialKey(serial), uuidKey(uuid)]
  return [ofSerial && `serial/${ofSerial}`, ofUuid && `uuid/${ofUuid}`].filter(key => key !== undefined)
}

/** Whether two machines have different serial numbers, or different UUIDs. */
export function differ(one: MachineIds, other: MachineIds): boolean {
  const kindOf = (key: string) => key.split('/', 1)[0]
  return machineKeys(one).some(key => machineKeys(other).some(k => k !== key && kindOf(k) === kindOf(key)))
}
