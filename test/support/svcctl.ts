import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join, resolve } from 'node:path'
import { buffer } from 'node:stream/consumers'
import type { Test } from 'tap'
import { client, namedFile } from '../../lib/ctl/client.js'
import { builtTree } from './built-tree.js'
import type { Controller } from './controller.js'

/**
 * What a shell needs in its environment so that `svcctl` asks a controller, logged in with its token. The
 * program and the token are put below `directory`, which is empty.
 */
export function svcctlFor(directory: string, c: Controller): Record<string, string> {
  mkdirSync(join(directory, 'code'))
  const tree = builtTree(join(directory, 'code'))
  return { PATH: `${join(tree, 'bin')}:${process.env.PATH}`, ...loggedIn(directory, c) }
}

/** Returns the environment in which the client asks a controller. `directory` keeps its token. */
export function loggedIn(directory: string, { daemon, token }: Controller): Record<string, string> {
  const url = `http://127.0.0.1:${daemon.port}`
  const cache = join(directory, 'cache')
  mkdirSync(join(cache, 'svcd'), { recursive: true, mode: 0o700 })
  writeFileSync(join(cache, 'svcd', `token-${encodeURIComponent(url)}`), `${token}\n`, { mode: 0o600 })
  return { SVCD_URL: url, XDG_CACHE_HOME: cache }
}

/** The surroundings of a run of `clientHere`. */
interface Meets {
  readonly input?: string | Buffer
  /** The directory for names of files; absent: this process's. */
  readonly directory?: string
  /** Whether the output is a terminal. */
  readonly tty?: boolean
  /** Returns the answer of a person to a question, also one without echo; absent: nobody is there. */
  readonly answers?: (question: string) => string | Promise<string>
  /** Returns a text as a person leaves it in the editor; absent: unchanged. */
  readonly edits?: (text: string) => string | Promise<string>
  /** Gets a function that types keys; absent: nobody is there. */
  readonly keys?: ((type: (text: string) => void) => unknown) | undefined
  /** Is told each text on standard error. */
  readonly told?: (text: string) => void
}

/** Runs the client in this process: a process of its own costs more than all it does. */
export async function clientHere(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  { input = '', directory = '.', tty = false, answers, edits = same => same, keys, told }: Meets = {}
): Promise<{ code: number; stdout: string; stderr: string }> {
  const wrote = { stdout: '', stderr: '' }
  const asked = async (question: string) => {
    if (!answers) throw new Error('nothing is asked here')
    wrote.stderr += question
    return answers(question)
  }
  const code = await client(args, {
    shows: { out: tty, err: tty, in: answers !== undefined || keys !== undefined },
    env,
    out: async text => {
      wrote.stdout += text
    },
    err: text => {
      wrote.stderr += text
      told?.(text)
    },
    confirmed: async question => (await asked(question)) === 'y',
    hidden: asked,
    edited: async text => edits(text),
    typed: take => {
      keys?.(take)
      return () => {}
    },
    file: path => namedFile(resolve(directory, path)),
    input: async () => Buffer.from(input)
  })
  return { code, ...wrote }
}

/**
 * Makes a program svcctl in an empty directory, which has this process run the client, and returns that
 * directory, for a PATH. In scripts of many commands the starts of node would take most of the time.
 */
export async function svcctlServed(t: Pick<Test, 'teardown'>, directory: string): Promise<string> {
  const server = createServer(async (request, response) => {
    const asked = await buffer(request)
    response.end(
      await servedAnswer(asked).catch((error: Error) => `echo ${quoted(String(error))} >&2; exit 99`)
    )
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => void server.close())
  const { port } = server.address() as AddressInfo
  const file = join(directory, 'svcctl')
  writeFileSync(
    file,
    `#!/bin/sh
# A command that reads nothing leaves the input of a loop around it alone.
input=/dev/null
for word; do case $word in - | *=- | --stdin) input=/dev/stdin ;; esac; done
answer=$({ printf '%s\\0' ${servedNames.map(name => `"\${${name}-}"`).join(' ')} "$#" "$@"; cat $input; } |
  curl -sS --data-binary @- http://127.0.0.1:${port}/) || exit 99
eval "$answer"
`
  )
  chmodSync(file, 0o755)
  return directory
}

/** Variables of a script that the client is given. */
const servedNames = ['PWD', 'HOME', 'SVCD_URL', 'SVCD_CACERT', 'XDG_CACHE_HOME']

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

/** Runs the client as its program asks, and returns a shell script that writes what it wrote. */
async function servedAnswer(asked: Buffer): Promise<string> {
  let at = 0
  const next = () => {
    const end = asked.indexOf(0, at)
    const word = asked.toString('utf8', at, end)
    at = end + 1
    return word
  }
  const values = servedNames.map(name => [name, next()] as const).filter(([, value]) => value !== '')
  const env = Object.fromEntries(values)
  const words = Array.from({ length: Number(next()) }, next)
  const { code, stdout, stderr } = await clientHere(words, env, {
    ...{ input: asked.subarray(at), directory: env.PWD ?? '/' }
  })
  return `printf %s ${quoted(stdout)}; printf %s ${quoted(stderr)} >&2; exit ${code}`
}
