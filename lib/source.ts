/** Where a request comes from, after `[http] trusted_proxies` has been applied (rules 4.5). */
export interface Source {
  /** IPv4 or IPv6 address in canonical text; an IPv4-mapped IPv6 address is given as IPv4. */
  readonly address: string
  /** True for 127.0.0.0/8 and ::1, unless the request carries X-Forwarded-For that no trusted proxy vouches for. */
  readonly loopback: boolean
  /** Another controller has handed the request on, and says from where it was asked (rules 11.16). */
  readonly isHandedOn?: true
}

/** What a handler that may leave a trace goes by. */
export interface Visit {
  readonly source: Source
  /** A HEAD: it is answered like the GET, but nothing is given, noted or begun for it (rules 2.5). */
  readonly headOnly: boolean
}

/** How an answer with a file ended. */
export interface Sent {
  /**
   * `whole`: to its last byte; `part`: a range of it, to its last byte; `cut`: the client went before; `front`: the front
   * server sends it, and svcd does not see how that ends; `refused`: nothing of the file was sent.
   */
  readonly end: 'whole' | 'part' | 'cut' | 'front' | 'refused'
  /** Bytes that were handed to the system, and that should have been. */
  readonly bytes: number
  readonly of: number
}
