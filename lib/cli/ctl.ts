import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { client, namedFile } from '../ctl/client.js'
import { refused, type Terminal } from '../ctl/terminal.js'
import { askHidden, confirmed, typed } from './ask.js'

/** Runs the client on this process's streams; returns its exit code, 0 if the reader of stdout is gone. */
export async function ctl(words: readonly string[]): Promise<number> {
  const { stdin, stdout, stderr, env } = process
  // Each write reports its own error.
  for (const stream of [stdout, stderr]) stream.on('error', () => {})
  const terminal: Terminal = {
    shows: { out: stdout.isTTY === true, err: stderr.isTTY === true, in: stdin.isTTY === true },
    env,
    out: text =>
      new Promise((resolve, reject) => {
        stdout.write(text, error => (error ? reject(error) : resolve()))
      }),
    err: text => {
      stderr.write(text)
    },
    confirmed,
    hidden: async question => Buffer.from(await askHidden(question)).toString('utf8'),
    typed,
    edited,
    input: () => buffer(stdin),
    file: namedFile
  }
  try {
    return await client(words, terminal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EPIPE') return 0
    throw error
  }
}

/** Runs the editor without a shell. The text may hold passwords, so its directory is private. */
async function edited(text: string): Promise<string> {
  const editor = process.env.VISUAL || process.env.EDITOR || 'vi'
  const directory = await mkdtemp(join(tmpdir(), 'svcctl-'))
  const file = join(directory, 'edit.txt')
  try {
    await writeFile(file, text, { mode: 0o600 })
    const [program = '', ...words] = editor.split(' ').filter(word => word !== '')
    const { startAttached } = await import('../program/held-program.js')
    const streams = ['inherit', 'inherit', 'inherit'] as const
    const code = await startAttached(program, [...words, file], streams).ended
    if (code === 0) return await readFile(file, 'utf8')
    throw new Error(`it ended with ${code ?? 'a signal'}`)
  } catch (error) {
    throw refused(`nothing was changed: ${editor} ($VISUAL, $EDITOR): ${(error as Error).message}`)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}
