/** Luna's texts, which its client and its daemon hold in base64, and its flags of interfaces (rules 2.17). */

/** A text has no control characters but tabs and line breaks. */
const control = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/
/** A word or number that an admin may have typed. */
const word = /^(?:[A-Za-z][a-z]*|[A-Z]+|\d+)$/
const plainText = /^[\w .,:=/-]*$/

/**
 * Decodes base64, or returns the value unchanged: if it is not canonical base64 on one line, or the result is
 * not UTF-8 or not a text. One in twenty words of four or eight letters is valid base64 (`disk` of `v+$`), so
 * a word is decoded only if the result is as plain. The client decodes what is left by mistake.
 */
export function decoded(value: string, before: () => unknown = () => undefined): string {
  const bytes = Buffer.from(value, 'base64')
  if (bytes.toString('base64') !== value) return value
  const text = bytes.toString('utf8')
  // Invalid UTF-8 becomes a replacement character, which has other bytes.
  if (!Buffer.from(text).equals(bytes) || control.test(text)) return value
  const isWord = word.test(value) && !plainText.test(text)
  return isWord || value === before() ? value : text
}

/** Splits a text at commas and line breaks. */
export function listed(value: string): string[] {
  const parts = decoded(value).split(/[,\r\n]/)
  return parts.map(part => part.trim()).filter(part => part !== '')
}

/** Reads luna's yes and no; undefined for another value. */
export const yesOrNo = (value: unknown): boolean | undefined =>
  /^(?:y|yes|true|1)$/i.test(String(value)) || (/^(?:n|no|false|0)$/i.test(String(value)) ? false : undefined)

/** Luna's interface flags, mapped to words of svcd's options (docs/interfaces.md). */
export const flags: Readonly<Record<string, string>> = {
  ...{ mtu: 'mtu', vlanid: 'vlan', vlan_parent: 'link' },
  ...{ bond_mode: 'mode', bond_slaves: 'bond', dhcp: 'dhcp' }
}

/** Sets these flags in interface options; an empty flag, and `dhcp` with no, is removed. */
export function withFlags(options: string, given: Readonly<Record<string, unknown>>): string {
  const before = options.split(/\s+/).filter(Boolean)
  const words = new Map(before.map(word => [word.replace(/=.*/, ''), word]))
  for (const [flag, key] of Object.entries(flags)) {
    const value = given[flag]
    if (value === undefined) continue
    const isYes = yesOrNo(value)
    const told = flag === 'dhcp' && isYes !== undefined ? (isYes ? 'yes' : '') : String(value ?? '')
    const text = told.trim().replace(/[\s,]+/g, ',')
    if (text === '') words.delete(key)
    else words.set(key, `${key}=${text}`)
  }
  return [...words.values()].join(' ')
}
