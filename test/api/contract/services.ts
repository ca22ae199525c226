import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ended } from '../../support/planted-request.js'
import type { Cases, Step } from './case.js'

/**
 * Settings of a DHCP and a DNS server whose programs do nothing, and do it well; their files are below
 * `directory`.
 */
export function pretended(directory: string): string[] {
  const control = join(directory, 'control')
  mkdirSync(join(directory, 'etc'), { recursive: true })
  writeFileSync(control, '#!/bin/sh\necho "$1 $2: as you like"\n')
  chmodSync(control, 0o755)
  return [['dhcp', 'isc'] as const, ['dns', 'dnsmasq'] as const].flatMap(([service, server]) => [
    `${service}.server=${server}`,
    `${service}.config=${join(directory, 'etc', `${service}.conf`)}`,
    `${service}.directory=${join(directory, 'etc', service)}`,
    `${service}.check=true`,
    // Once at the start.
    `${service}.gather=1h`,
    `${service}.control=${control}`
  ])
}

const acknowledged = { message: 'queued', request_id: /^[\da-f]{32}$/ }

function ofService(name: string, server: string): Record<string, readonly Step[]> {
  const control = ['start', 'stop', 'restart', 'reload'].map(verb => {
    const path = `/service/${name}/${verb}`
    return [`GET ${path}`, [{ what: 'is queued', ask: [path], status: 200, shows: acknowledged }]] as const
  })
  const preview = `/config/${name}/_preview`
  return {
    ...Object.fromEntries<readonly Step[]>(control),
    [`GET /service/${name}/status`]: [
      {
        what: 'that it runs, in the words of the command',
        ask: [`/service/${name}/status`],
        by: 'viewer',
        status: 200,
        shows: {
          monitor: {
            service: {
              [name]: { status: 'ok', server, state: 'running', output: /^status .*: as you like$/ }
            }
          }
        }
      },
      { what: 'not for a node', ask: [`/service/${name}/status`], by: 'n1', status: 403 }
    ],
    [`GET ${preview}`]: [
      {
        what: 'the files, with what is new in them',
        ask: [preview],
        status: 200,
        shows: { config: { [name]: { server, files: [{ path: /\.conf$/, text: /cluster/ }] } } }
      }
    ]
  }
}

/** Control of DHCP and DNS, and how all is (rules 2.10, 6.3, 10.9). */
export const services: Cases = {
  ...ofService('dhcp', 'isc'),
  ...ofService('dns', 'dnsmasq'),
  'GET /service/status/{request_id}': [
    {
      what: 'as below /config/status',
      ask: [`/service/status/${ended.id}`],
      by: 'admin',
      status: 404,
      says: /read its end/
    },
    {
      what: 'one that runs',
      ask: ['/service/status/{running}'],
      status: 200,
      shows: { status: 200, state: /^(queued|running)$/ }
    }
  ],
  'GET /monitor/primary': [
    {
      what: 'whether this controller writes',
      ask: ['/monitor/primary'],
      by: 'nobody',
      status: 200,
      shows: { primary: true }
    }
  ],
  'GET /monitor/status': [
    {
      what: 'all at once',
      ask: ['/monitor/status'],
      status: 200,
      shows: {
        monitor: { service: { svcd: { status: 'ok' }, dhcp: { status: 'ok' }, dns: { status: 'ok' } } }
      }
    },
    {
      what: 'their status alone without a token',
      ask: ['/monitor/status'],
      by: 'nobody',
      status: 200,
      shows: { monitor: { service: { dhcp: { status: 'ok' } } } }
    }
  ]
}
