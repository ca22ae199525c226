import { existing } from '../../support/routes.js'
import type { Cases } from './case.js'
import { base64, files, mac } from './world.js'

const url = 'http://10.141.255.254:7050'
const kernel = new RegExp(`svc.mac=${mac} .* svc.node=n1 `)
const other = '52:54:00:00:00:99'
const withMac = (macaddress: string | undefined) => ({
  ...files.n1,
  interfaces: files.n1.interfaces.map(({ macaddress: _, ...entry }) =>
    entry.interface === 'BOOTIF' && macaddress !== undefined ? { ...entry, macaddress } : entry
  )
})
const malformed = { what: 'a malformed MAC', status: 400, says: /not a MAC address/ }
const outside = { source: '192.0.2.9', status: 403, says: /192\.0\.2\.9/ }

/**
 * Token and version; boot and installation (rules 4.1, 4.3, 4.4, 4.5, 4.6, 4.7, 4.9, 4.10, 4.27, 5.1, 6.4).
 */
export const service: Cases = {
  'POST /token': [
    {
      what: 'user and password',
      ask: ['/token', { username: 'root', password: 'correct horse' }],
      by: 'nobody',
      status: 201,
      shows: { token: /^\S+\.\S+\.\S+$/ }
    },
    {
      what: 'a wrong password',
      ask: ['/token', { username: 'root', password: 'wrong' }],
      by: 'nobody',
      source: '192.0.2.1',
      status: 401
    },
    {
      what: 'an unknown user',
      ask: ['/token', { username: 'admin', password: 'correct horse' }],
      by: 'nobody',
      source: '192.0.2.2',
      status: 401
    },
    { what: 'no password', ask: ['/token', { username: 'root' }], status: 400, says: /"password"/ },
    { what: 'a number', ask: ['/token', { username: 1, password: 'x' }], status: 400, says: /"username"/ },
    { what: 'no JSON', ask: ['/token', 'username=root'], status: 400, says: /line 1/ }
  ],
  'GET /': [{ what: 'the status page', ask: ['/'], by: 'nobody', status: 200, text: /^<!doctype html>/ }],
  'GET /page/{file}': [
    { what: 'a file of it', ask: ['/page/app.js'], by: 'nobody', status: 200, text: /import/ },
    { what: 'no file of it', ask: ['/page/none.js'], by: 'nobody', status: 404, says: /none\.js/ }
  ],
  'GET /version': [
    {
      what: 'version, API and commit',
      ask: ['/version'],
      by: 'nobody',
      status: 200,
      shows: { version: { service: /^\d+\.\d+\.\d+$/, api: 1, commit: /./ } }
    }
  ],
  'GET /openapi.json': [
    { what: 'the document', ask: ['/openapi.json'], by: 'nobody', status: 200, shows: { openapi: /^3\.1\./ } }
  ],
  'GET /boot': [
    {
      what: 'the normal menu',
      ask: ['/boot'],
      by: 'nobody',
      status: 200,
      text: /^#!ipxe\n[\s\S]*n1[\s\S]*compute|compute[\s\S]*n1/
    }
  ],
  'GET /boot/short': [
    { what: 'the short menu', ask: ['/boot/short'], by: 'nobody', status: 200, text: /^#!ipxe\n/ }
  ],
  'GET /boot/disk': [
    { what: 'boots the disk', ask: ['/boot/disk'], by: 'nobody', status: 200, text: /sanboot [^\n]*0x80/ }
  ],
  'GET /boot/search/{macaddress}': [
    { what: 'a known MAC', ask: [`/boot/search/${mac}`], by: 'nobody', status: 200, text: kernel },
    {
      what: 'an unknown one',
      ask: [`/boot/search/${other}`],
      by: 'nobody',
      status: 200,
      text: new RegExp(other)
    },
    { ...malformed, ask: ['/boot/search/52:54'] }
  ],
  'GET /boot/search/mac/{macaddress}': [
    { what: 'a known MAC', ask: [`/boot/search/mac/${mac}`], by: 'nobody', status: 200, text: kernel },
    { ...malformed, ask: ['/boot/search/mac/52:54'] }
  ],
  'GET /boot/manual/hostname/{hostname}': [
    {
      what: 'without a MAC nothing is stored, iPXE fills it in',
      ask: ['/boot/manual/hostname/n1'],
      by: 'nobody',
      status: 200,
      text: /svc\.mac=\$\{netX\/mac\} [\s\S]*svc\.node=n1 /
    },
    {
      what: 'an unknown name',
      ask: ['/boot/manual/hostname/n9'],
      by: 'nobody',
      status: 200,
      text: /there is no node n9/
    },
    { what: 'no name', ask: ['/boot/manual/hostname/N_1'], status: 400, says: /host name/ },
    { what: 'from outside', ask: ['/boot/manual/hostname/n1'], by: 'nobody', ...outside }
  ],
  'GET /boot/manual/hostname/{hostname}/{macaddress}': [
    {
      what: 'the MAC is the node now',
      ask: [`/boot/manual/hostname/n1/${other}`],
      by: 'nobody',
      status: 200,
      text: new RegExp(`svc\\.mac=${other} `),
      files: {
        'node/n1.json': withMac(other),
        'handover/n1.json': { name: 'n1', taken: 'a time', mac: other, from: '127.0.0.1' }
      }
    },
    {
      what: 'the former owner loses it',
      ask: [`/boot/manual/hostname/n2/${mac}`],
      by: 'nobody',
      status: 200,
      text: /node n2 has no OS image/,
      files: {
        'node/n1.json': withMac(undefined),
        'node/n2.json': { name: 'n2', interfaces: [{ interface: 'BOOTIF', macaddress: mac, own: true }] },
        'handover/n1.json': { name: 'n1', taken: 'a time', mac, to: 'n2', from: '127.0.0.1' },
        'node-status.journal': [{ node: 'n2', reason: 'node n2 has no OS image' }]
      }
    },
    { ...malformed, ask: ['/boot/manual/hostname/n1/52:54'] },
    { what: 'from outside', ask: [`/boot/manual/hostname/n1/${other}`], by: 'nobody', ...outside }
  ],
  'GET /boot/manual/group/{groupname}/{macaddress}': [
    {
      what: 'a new member when none is free',
      ask: [`/boot/manual/group/compute/${other}`],
      by: 'nobody',
      status: 200,
      text: /svc\.node=n3 /,
      files: {
        'node/n3.json': {
          name: 'n3',
          group: 'compute',
          interfaces: [
            { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.3', macaddress: other }
          ]
        }
      }
    },
    {
      what: 'the member that has it',
      ask: [`/boot/manual/group/compute/${mac}`],
      by: 'nobody',
      status: 200,
      text: kernel
    },
    { ...malformed, ask: ['/boot/manual/group/compute/52:54'] },
    { what: 'from outside', ask: [`/boot/manual/group/compute/${other}`], by: 'nobody', ...outside },
    {
      what: 'no free address for a new member: the console is told, and nothing is made',
      ask: [`/boot/manual/group/crowded/${other}`],
      by: 'nobody',
      status: 200,
      text: /^#!ipxe\n[\s\S]*network full has no free address/
    }
  ],
  'GET /boot/roles/{role}': [
    {
      what: 'its target and its text',
      ask: ['/boot/roles/web'],
      by: 'n1',
      status: 200,
      body: { target: 'web.target', script: base64('# target: web.target\necho web\n') }
    },
    {
      what: 'for a user too',
      ask: ['/boot/roles/web'],
      by: 'viewer',
      status: 200,
      shows: { target: 'web.target' }
    },
    { what: 'not for a node without it', ask: ['/boot/roles/web'], by: 'n2', status: 403, says: /node n2/ },
    { what: 'an unknown role', ask: ['/boot/roles/none'], status: 404, says: /role none/ }
  ],
  'GET /boot/scripts/{script}': [
    {
      what: 'its default target and its text',
      ask: ['/boot/scripts/setup'],
      by: 'n1',
      status: 200,
      body: { target: 'post', script: base64('echo setup\n') }
    },
    { what: 'an unknown script', ask: ['/boot/scripts/none'], status: 404, says: /script none/ }
  ],
  'GET /kickstart/install/{node}': [
    {
      what: 'masked for a stranger',
      ask: ['/kickstart/install/n1'],
      by: 'nobody',
      status: 200,
      text: /^#[\s\S]*masked/
    },
    {
      what: 'whole for the node',
      ask: ['/kickstart/install/n1'],
      by: 'nobody',
      source: '10.141.0.1',
      status: 200,
      text: new RegExp(url)
    },
    { what: 'an unknown node', ask: ['/kickstart/install/n9'], by: 'nobody', status: 404, says: /node n9/ },
    { what: 'no name', ask: ['/kickstart/install/N_1'], by: 'nobody', status: 400, says: /host name/ }
  ],
  'GET /boot/install/{node}': [
    {
      what: 'for the node itself',
      ask: ['/boot/install/n1'],
      by: 'nobody',
      source: '10.141.0.1',
      status: 200,
      text: /\nSVC_TOKEN='[^*']+'\n/
    },
    {
      what: 'from another address',
      ask: ['/boot/install/n1'],
      by: 'nobody',
      source: '10.141.0.9',
      status: 401
    },
    {
      what: 'a token helps nobody',
      ask: ['/boot/install/n1'],
      by: 'admin',
      source: '10.141.0.9',
      status: 401
    },
    {
      what: 'a bad one spoils it',
      ask: ['/boot/install/n1'],
      by: 'garbage',
      source: '10.141.0.1',
      status: 401
    },
    { what: 'an unknown node', ask: ['/boot/install/n9'], by: 'nobody', source: '10.141.0.1', status: 404 },
    { what: 'no name', ask: ['/boot/install/N_1'], by: 'nobody', source: '10.141.0.1', status: 400 }
  ],
  ...Object.fromEntries(
    (
      [
        ['meta-data', /"instance-id": "n1-/],
        ['user-data', /^#cloud-config\n/],
        ['vendor-data', /^$/],
        ['network-config', /"version": 2/]
      ] as const
    ).map(([file, text]): [string, Cases[string]] => [
      `GET /boot/cloud-init/{node}/${file}`,
      [
        {
          what: 'for the node itself',
          ask: [`/boot/cloud-init/n1/${file}`],
          by: 'nobody',
          source: '10.141.0.1',
          status: 200,
          text
        },
        { what: 'with its token', ask: [`/boot/cloud-init/n1/${file}`], by: 'n1', status: 200, text },
        {
          what: 'from another address',
          ask: [`/boot/cloud-init/n1/${file}`],
          by: 'nobody',
          source: '10.141.0.9',
          status: 401
        },
        {
          what: 'an unknown node',
          ask: [`/boot/cloud-init/n9/${file}`],
          by: 'nobody',
          source: '10.141.0.1',
          status: 404
        },
        {
          what: 'no name',
          ask: [`/boot/cloud-init/N_1/${file}`],
          by: 'nobody',
          source: '10.141.0.1',
          status: 400
        }
      ]
    ])
  ),
  'GET /boot/running/{node}/{tarball}': [
    {
      what: 'from the node itself',
      ask: ['/boot/running/n1/compute.tar.gz'],
      by: 'nobody',
      source: '10.141.0.1',
      status: 200,
      says: /n1 runs compute\.tar\.gz/
    },
    {
      what: 'from another address',
      ask: ['/boot/running/n1/compute.tar.gz'],
      by: 'nobody',
      source: '10.141.0.9',
      status: 401
    },
    {
      what: 'an unknown node',
      ask: ['/boot/running/n9/compute.tar.gz'],
      by: 'nobody',
      source: '10.141.0.1',
      status: 404
    },
    {
      what: 'no name',
      ask: ['/boot/running/N_1/compute.tar.gz'],
      by: 'nobody',
      source: '10.141.0.1',
      status: 400
    }
  ],
  'GET /boot/library/{sha256}': [
    {
      what: 'the functions of install scripts',
      ask: [`/boot/library/${existing.sha256}`],
      by: 'nobody',
      status: 200,
      text: /\nunpack\(\) \{\n/
    },
    {
      what: 'another checksum',
      ask: [`/boot/library/${'0'.repeat(64)}`],
      by: 'nobody',
      status: 404,
      says: /no library 0{64}/
    },
    { what: 'no checksum', ask: ['/boot/library/x'], by: 'nobody', status: 404, says: /no library "x"/ }
  ],
  'GET /boot/{file}': [
    { what: "an image's kernel", ask: ['/boot/vmlinuz'], by: 'nobody', status: 200, text: /^vmlinuz$/ },
    { what: 'a packed image is none', ask: ['/boot/compute.tar.gz'], by: 'nobody', status: 404 }
  ],
  'GET /files/{tarball}': [
    {
      what: 'to an address in a network',
      ask: ['/files/compute.tar.gz'],
      by: 'nobody',
      source: '10.141.7.7',
      status: 200,
      text: /^compute\.tar\.gz$/
    },
    {
      what: 'with a token',
      ask: ['/files/compute.tar.gz'],
      by: 'viewer',
      source: '192.0.2.9',
      status: 200,
      text: /^compute\.tar\.gz$/
    },
    {
      what: 'to the node that has it',
      ask: ['/files/compute.tar.gz'],
      by: 'n1',
      status: 200,
      text: /^compute\.tar\.gz$/
    },
    {
      what: 'not by the token of another, from elsewhere',
      ask: ['/files/compute.tar.gz'],
      by: 'n2',
      source: '192.0.2.9',
      status: 403,
      says: /node n2/
    },
    { what: 'to a stranger', ask: ['/files/compute.tar.gz'], by: 'nobody', source: '192.0.2.9', status: 401 },
    { what: 'a kernel is none', ask: ['/files/vmlinuz'], by: 'nobody', status: 404 }
  ]
}
