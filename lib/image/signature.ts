import { open } from 'node:fs/promises'
import { oneLine } from '../base/log.js'
import { withOpen } from '../disk/file.js'
import { unsigned } from '../model/secure-boot.js'
import { ProgramError, run } from '../program/program.js'

const LOOK_MS = 30_000
/** Bytes of the list of a kernel's signatures. An image may be a stranger's. */
const MOST_OUTPUT = 64 * 1024
/** Bytes of a kernel that is looked at: sbverify holds it in memory. */
const MOST_BYTES = 256 * 1024 * 1024
const LONGEST_NAMES = 200

/**
 * Returns who signed a kernel for Secure Boot: the common names, or `none` (rules 15.13). The names are those
 * that the file says of itself: only the firmware and shim verify them. Never throws for a strange file.
 */
export async function signerOf(kernel: string, signal: AbortSignal) {
  const cannot = (why: string) => ({ unknown: `it is not known who signed the kernel: ${why}` })
  const { size, magic } = await headOf(kernel)
  // Any other file is no program of EFI, and cannot carry a signature.
  if (magic !== 'MZ') return { signer: unsigned }
  if (size > MOST_BYTES) return cannot(`it has ${size} bytes, and over ${MOST_BYTES} are not looked at`)
  try {
    const limits = { timeLimitMs: LOOK_MS, maxOutput: MOST_OUTPUT, signal }
    const { stdout } = await run('sbverify', ['--list', kernel], limits)
    return { signer: signersIn(stdout) }
  } catch (error) {
    signal.throwIfAborted()
    if (!(error instanceof ProgramError)) throw error
    return cannot(error.message)
  }
}

const headOf = (file: string): Promise<{ size: number; magic: string }> =>
  withOpen(open(file), async handle => {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(2), 0, 2, 0)
    return { size: (await handle.stat()).size, magic: buffer.toString('latin1', 0, bytesRead) }
  })

/** Reads the list of sbverify: per signature, the issuers of its signers, then certificates. */
function signersIn(list: string): string {
  const names = list
    .split(/^signature \d+$/m)
    .slice(1)
    .flatMap(signature => {
      const [issuers = '', certificates = ''] = signature.split(/^image signature certificates:$/m)
      const issued = new Set([...issuers.matchAll(/^ - (.+)$/gm)].map(([, issuer = '']) => issuer.trim()))
      const all = [...certificates.matchAll(/^ - subject: *(.+)\n +issuer: *(.+)$/gm)]
      const signer = all.find(([, subject, issuer = '']) => subject !== issuer && issued.has(issuer.trim()))
      return [signer?.[1] ?? all[0]?.[1] ?? [...issued][0] ?? 'an unnamed key'].map(commonName)
    })
  return names.length === 0 ? unsigned : oneLine([...new Set(names)].join(', '), LONGEST_NAMES)
}

/** Returns the common name of a subject such as /C=US/O=Maker/CN=Name, or all of it. */
const commonName = (subject: string) =>
  /\/CN=(.+?)(?=\/[A-Za-z]+=|$)/.exec(subject.trim())?.[1] ?? subject.trim()
