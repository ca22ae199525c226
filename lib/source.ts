/** Where a request comes from, after `[http] trusted_proxies` has been applied (rules 4.5). */
export interface Source {
  /** IPv4 or IPv6 address in canonical text; an IPv4-mapped IPv6 address is given as IPv4. */
  readonly address: string
  /** True for 127.0.0.0/8 and ::1, unless the request carries X-Forwarded-For that no trusted proxy vouches for. */
  readonly loopback: boolean
}
