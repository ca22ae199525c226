import { buffer } from 'node:stream/consumers'
import { client, namedFile } from '../ctl/client.js'
import type { Terminal } from '../ctl/terminal.js'
import { askHidden, confirmed } from './ask.js'

/** Runs the client on this process's streams; gives its exit code. A reader of stdout that goes away ends it quietly. */
export async function ctl(words: readonly string[]): Promise<number> {
  const { stdin, stdout, stderr, env } = process
  // Each write tells its own error.
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
