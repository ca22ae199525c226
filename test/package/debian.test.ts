import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import t from 'tap'
import { checkout, requirePrograms } from '../support/programs.js'

requirePrograms('shellcheck')
const directory = join(checkout, 'build/package')
const read = (name: string) => readFileSync(join(directory, name), 'utf8')

t.test('the scripts of the package are sound', async t => {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter(entry =>
    entry.isFile()
  )
  const scripts = files
    .map(({ parentPath, name }) => relative(directory, join(parentPath, name)))
    .filter(name => read(name).startsWith('#!/bin/sh'))
  t.ok(['debian/postinst', 'debian/postrm', 'debian/prerm'].every(name => scripts.includes(name)))
  t.equal(execFileSync('shellcheck', scripts, { cwd: directory, encoding: 'utf8' }), '')
  for (const name of scripts) t.match(read(name), /^set -eu?$/m, name)
})

t.test('the runtime is one version for all machines, with a checksum', async t => {
  const { version, ...architectures } = JSON.parse(read('runtime.json'))
  t.match(version, /^24\.\d+\.\d+$/)
  t.strictSame(Object.keys(architectures), ['amd64', 'arm64'])
  for (const { name, integrity } of Object.values<{ name: string; integrity: string }>(architectures)) {
    t.match(name, /^node-linux-(x64|arm64)$/)
    t.match(integrity, /^sha512-[A-Za-z0-9+/]{86}==$/)
  }
})

t.test('the package depends on no Node and on what the documents name', async t => {
  const [, depends = ''] = /^Depends: (.*)$/m.exec(read('debian/control')) ?? []
  const names = depends.split(', ').map(word => word.split(' ')[0])
  t.strictSame(names, ['libc6', 'libgcc-s1', 'libstdc++6', 'mount', 'systemd'])
  const documents = readFileSync(join(checkout, 'docs/packages.md'), 'utf8').replace(/\s+/g, ' ')
  for (const name of names) t.match(documents, name)
})
