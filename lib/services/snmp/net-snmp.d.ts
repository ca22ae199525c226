/** Types of the parts of net-snmp that are used here: the package has none. */
declare module 'net-snmp' {
  import type { Socket } from 'node:dgram'
  import type { EventEmitter } from 'node:events'

  export interface Varbind {
    readonly oid: string
    readonly type: number
    readonly value: unknown
  }
  export interface Session extends EventEmitter {
    /** Walks an OID; `feed` ends it by returning true; `done` may be called more than once. */
    subtree(
      oid: string,
      maxRepetitions: number,
      feed: (varbinds: readonly Varbind[]) => boolean,
      done: (error?: Error | null) => void
    ): void
    close(): void
  }
  export interface SessionOptions {
    readonly port: number
    /** Version2c or Version3. */
    readonly version: number
    readonly retries: number
    /** Milliseconds, for each try. */
    readonly timeout: number
    readonly dgramModule: { createSocket(type: 'udp4'): Socket }
  }
  export interface User {
    readonly name: string
    readonly level: number
    readonly authProtocol?: string
    readonly authKey?: string
    readonly privProtocol?: string
    readonly privKey?: string
  }
  const snmp: {
    readonly Version2c: number
    readonly Version3: number
    readonly SecurityLevel: Readonly<Record<'noAuthNoPriv' | 'authNoPriv' | 'authPriv', number>>
    readonly AuthProtocols: Readonly<Record<'sha', string>>
    readonly PrivProtocols: Readonly<Record<'aes', string>>
    /** Code → its name. */
    readonly ResponseInvalidCode: Readonly<Record<string, string | number>>
    createSession(target: string, community: string, options: SessionOptions): Session
    createV3Session(target: string, user: User, options: SessionOptions): Session
  }
  export default snmp
}
