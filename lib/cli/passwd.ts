import { buffer } from 'node:stream/consumers'
import { grantText, parseGrant } from '../auth/grant.js'
import { hashPassword, longestPassword } from '../auth/passwords.js'
import { strictUtf8 } from '../base/json.js'
import { nameRule, nameRuleText } from '../config/values.js'
import { askHidden } from './ask.js'
import { UsageError } from './usage.js'

/** Returns the line for `[users]` (rules 5.1). Throws UsageError, or Error for an unusable password. */
export async function passwd(name: string, role: string, stdin: boolean): Promise<string> {
  if (!nameRule.test(name)) throw new UsageError(`USER must be ${nameRuleText}`)
  const grant = readRole(role)
  if (!stdin && !process.stdin.isTTY)
    throw new UsageError('there is no terminal to ask for the password on: use --stdin')
  const password = stdin ? decode(await buffer(process.stdin)).replace(/\r?\n$/, '') : await askTwice(name)
  if (password === '') throw new Error('the password is empty')
  if (/[\r\n\0]/.test(password)) throw new Error('the password must be one line of text')
  if (Buffer.byteLength(password) > longestPassword)
    throw new Error(`the password is longer than ${longestPassword} bytes`)
  return `${name} = ${grantText(grant)} ${await hashPassword(password)}\n`
}

function readRole(text: string) {
  try {
    return parseGrant(text)
  } catch (error) {
    throw new UsageError(`--role ${(error as Error).message}`)
  }
}

async function askTwice(name: string): Promise<string> {
  const first = decode(await askHidden(`Password of ${name}: `))
  const second = decode(await askHidden('The same again: '))
  if (first !== second) throw new Error('the two passwords differ')
  return first
}

function decode(bytes: Uint8Array): string {
  const text = strictUtf8(bytes)
  if (text === undefined) throw new Error('the password is not UTF-8')
  return text
}
