/** Luna's texts, which its client and its daemon hold in base64, and its flags of interfaces (rules 2.17). */

/** A text holds no control characters other than tabs and line breaks. */
const control = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/
/** A word or a number, as an admin types it. */
const word = /^(?:[A-Za-z][a-z]*|[A-Z]+|\d+)$/
const plainText = /^[\w .,:=/-]*$/

/**
 * The text in base64, or the value as it is: where it is no base64 as encoders write it (canonical, on one
 * line), or the result is no UTF-8 or no text. One word of four or eight letters in twenty would be base64 of
 * a text, such as `disk` of `v+$`: a word stays unless its result looks as plain. A text that stays in base64
 * by mistake is shown right by the client, which takes it out itself.
 */
export function decoded(value: string, before: () => unknown = () => undefined): string {
  const bytes = Buffer.from(value, 'base64')
  if (bytes.toString('base64') !== value) return value
  const text = bytes.toString('utf8')
  // An invalid sequence becomes a replacement character, which has other bytes.
  if (!Buffer.from(text).equals(bytes) || control.test(text)) return value
  const isWord = word.test(value) && !plainText.test(text)
  return isWord || value === before() ? value : text
}

/** The parts of a text with commas or line breaks between them. */
export function listed(value: string): string[] {
  const parts = decoded(value).split(/[,\r\n]/)
  return parts.map(part => part.trim()).filter(part => part !== '')
}

/** Yes and no, as luna's client and its database have them; undefined for another value. */
export const yesOrNo = (value: unknown): boolean | undefined =>
  /^(?:y|yes|true|1)$/i.test(String(value)) || (/^(?:n|no|false|0)$/i.test(String(value)) ? false : undefined)

/** Luna's flags of an interface, and the words of svcd's options that they become (docs/interfaces.md). */
export const flags: Readonly<Record<string, string>> = {
  ...{ mtu: 'mtu', vlanid: 'vlan', vlan_parent: 'link' },
  ...{ bond_mode: 'mode', bond_slaves: 'bond', dhcp: 'dhcp' }
}

/** Options with these flags set, and those taken out that are empty, or `dhcp` with no. */
export function withFlags(options: string, given: Readonly<Record<string, unknown>>): string {
  const words = new Map(
    options
      .split(/\s+/)
      .filter(word => word !== '')
      .map(word => [word.replace(/=.*/, ''), word])
  )
  for (const [flag, key] of Object.entries(flags)) {
    const value = given[flag]
    if (value === undefined) continue
    const isYes = yesOrNo(value)
    const told = flag === 'dhcp' && isYes !== undefined ? (isYes ? 'yes' : '') : String(value ?? '')
    const text = told
      .trim()
      .split(/[\s,]+/)
      .join(',')
    if (text === '') words.delete(key)
    else words.set(key, `${key}=${text}`)
  }
  return [...words.values()].join(' ')
}
