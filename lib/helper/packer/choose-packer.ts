import { unavailable } from '../../base/errors.js'
import { locate, run } from '../../program/program.js'
import { builtinPacker } from './builtin-packer.js'
import { type Compressor, systemPacker } from './system-packer.js'

/** Returns the packer of the ini; `auto`: GNU tar's if it is there. Throws 503 naming what is missing. */
export async function choosePacker(packer: 'auto' | 'system' | 'builtin', compressor: Compressor) {
  if (packer === 'builtin') return builtinPacker
  const { stdout } = await run('tar', ['--version'], { timeLimitMs: 30_000 }).catch(() => ({ stdout: '' }))
  if (!stdout.includes('GNU tar')) {
    if (packer === 'auto') return builtinPacker
    throw unavailable('GNU tar is not installed, which [image] packer = system needs')
  }
  if (compressor !== 'none' && (await locate(compressor)) === undefined)
    throw unavailable(`${compressor} is not installed, which [image] compressor = ${compressor} needs`)
  return systemPacker(compressor)
}
