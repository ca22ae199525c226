import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import { startChild } from './child.js'
import { output, requirePrograms } from './programs.js'
import { scratch } from './scratch.js'

/** A TPM of swtpm, with certificates of its endorsement keys, and tpm2-tools to speak to it. */
export interface Tpm {
  /** Here the tools run, and leave their files. */
  readonly directory: string
  /** Runs a tool by its name without `tpm2_`, and then makes room in the TPM: it holds three keys. */
  tool(name: string, ...args: readonly string[]): Promise<string>
  /** Runs commands of a shell in `directory`. The tools find the TPM; nothing makes room in it after them. */
  shell(commands: string): Promise<string>
  /** A file that a tool left. */
  read(name: string): Buffer
  /** Makes a key, by default an attestation key, and leaves `<name>.pub`, `.name`, `.pem` and `.ctx`. */
  key(name: string, algorithm?: string, attributes?: string): Promise<Buffer>
  /** Quotes PCRs by a key of that name: `<key>.quote` and `<key>.signature`. */
  quote(key: string, nonce: string, pcrs?: string): Promise<readonly [quote: Buffer, signature: Buffer]>
  /**
   * Opens a credential as a node does. `ek` is a file of its context, or a handle.
   * @throws Error when the TPM does not open it.
   */
  open(credential: Buffer, key: string, ek: string): Promise<Buffer>
}

/** A signing key that never leaves its TPM, and signs nothing but what the TPM made. */
export const attesting = 'fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|sign'

/** The PCRs that a node quotes. */
export const quotedPcrs = 'sha256:0,1,2,3,4,5,6,7,8,9,14'

/** Makes the configuration of swtpm's certificate authority, which it makes at the first certificate. */
export function tpmAuthority(directory: string): string {
  const file = join(directory, 'setup.conf')
  if (existsSync(file)) return file
  const names = { signingkey: 'signkey.pem', issuercert: 'issuer.pem', certserial: 'serial' }
  const lines = Object.entries(names).map(([key, name]) => `${key} = ${join(directory, name)}`)
  writeFileSync(join(directory, 'localca.conf'), `${[`statedir = ${directory}`, ...lines].join('\n')}\n`)
  writeFileSync(
    join(directory, 'options'),
    '--platform-manufacturer svcd\n--platform-version 1\n--platform-model test\n'
  )
  const setup = ['/usr/bin/swtpm_localca', join(directory, 'localca.conf'), join(directory, 'options')]
  const keys = ['create_certs_tool', 'create_certs_tool_config', 'create_certs_tool_options']
  writeFileSync(file, `${keys.map((key, i) => `${key} = ${setup[i]}`).join('\n')}\n`)
  return file
}

/**
 * Makes and starts a TPM for one test. `authority` is the directory of the authority that certifies it: the
 * PEM is `issuer.pem` there, and that of its root `swtpm-localca-rootca-cert.pem`. With `locality` it is that
 * which starts the TPM.
 */
export async function startTpm(
  t: Pick<Test, 'teardown'>,
  { authority = scratch(t), locality }: { authority?: string; locality?: number } = {}
): Promise<Tpm> {
  requirePrograms('swtpm', 'swtpm_setup', 'tpm2_createek')
  const directory = scratch(t)
  const state = join(directory, 'state')
  mkdirSync(state)
  await output('swtpm_setup', [
    ...['--tpm2', '--tpmstate', state, '--config', tpmAuthority(authority), '--create-ek-cert'],
    ...['--write-ek-cert-files', directory, '--overwrite']
  ])
  const socket = join(directory, 'tpm')
  const words = [
    '--tpm2',
    '--tpmstate',
    `dir=${state}`,
    '--flags',
    locality === undefined ? 'not-need-init,startup-clear' : 'not-need-init'
  ]
  const sockets = ['--server', `type=unixio,path=${socket}`, '--ctrl', `type=unixio,path=${socket}.ctrl`]
  const child = await startChild(['swtpm', 'socket', ...words, ...sockets], () =>
    existsSync(`${socket}.ctrl`)
  )
  t.teardown(() => child.kill())
  if (locality !== undefined) {
    await output('swtpm_ioctl', ['--unix', `${socket}.ctrl`, '-l', String(locality)])
    // tpm2_startup would set the locality anew.
    const connection = connect(socket)
    connection.write(Buffer.from('80010000000c000001440000', 'hex'))
    await once(connection, 'data')
    connection.destroy()
  }
  const run = (name: string, args: readonly string[]) =>
    output(`tpm2_${name}`, ['-T', `swtpm:path=${socket}`, ...args], { cwd: directory })
  const read = (name: string) => readFileSync(join(directory, name))
  const tool = async (name: string, ...args: readonly string[]) => {
    const said = await run(name, args)
    await run('flushcontext', ['-t'])
    return said
  }
  const shell = (commands: string) =>
    output('sh', ['-euc', `export TPM2TOOLS_TCTI=swtpm:path=${socket}\n${commands}`], { cwd: directory })
  return {
    ...{ directory, tool, shell, read },
    async key(name, algorithm = 'ecc256:ecdsa-sha256:null', attributes = attesting) {
      const ctx = `${name}.ctx`
      await tool(
        'createprimary',
        '-Q',
        '-C',
        'e',
        '-g',
        'sha256',
        '-G',
        algorithm,
        '-a',
        attributes,
        '-c',
        ctx
      )
      await tool('readpublic', '-Q', '-c', ctx, '-f', 'tss', '-o', `${name}.pub`, '-n', `${name}.name`)
      await tool('readpublic', '-Q', '-c', ctx, '-f', 'pem', '-o', `${name}.pem`)
      return read(`${name}.pub`)
    },
    async quote(key, nonce, pcrs = quotedPcrs) {
      const files = ['-m', `${key}.quote`, '-s', `${key}.signature`]
      await tool('quote', '-Q', '-c', `${key}.ctx`, '-l', pcrs, '-q', nonce, '-g', 'sha256', ...files)
      return [read(`${key}.quote`), read(`${key}.signature`)]
    },
    async open(credential, key, ek) {
      writeFileSync(join(directory, 'credential'), credential)
      const files = ['-c', `${key}.ctx`, '-i', 'credential', '-o', 'secret']
      const auth = ek.startsWith('0x') ? [] : ['-P', 'session:session']
      try {
        await run('startauthsession', ['--policy-session', '-S', 'session'])
        await run('policysecret', ['-Q', '-S', 'session', '-c', 'e'])
        await run('activatecredential', ['-Q', ...files, '-C', ek, ...auth])
        return read('secret')
      } finally {
        await run('flushcontext', ['session']).catch(() => '')
        await run('flushcontext', ['-t'])
      }
    }
  }
}
