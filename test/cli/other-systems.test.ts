import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { builtTree, svcd } from '../support/built-tree.js'
import { Controller } from '../support/controller.js'
import { warewulfBefore, warewulfToday, xcat } from '../support/other-systems.js'

const tree = builtTree(t.testdir())
const file = join(tree, 'given')
const import_ = (c: Controller, option: string, ...more: string[]) => {
  const settings = [...c.overrides, `http.listen=127.0.0.1:${c.daemon.port}`].flatMap(one => ['--set', one])
  const words = ['import', option, file, ...more, '--config', join(tree, 'etc/svcd.ini'), ...settings]
  return svcd(tree, words)
}

// rules 3.11
t.test('files of Warewulf and xCAT are imported, and their nodes boot', async t => {
  const c = await Controller.start(t)
  for (const [option, text, node, has] of [
    ['--warewulf', warewulfToday, 'n1', /crashkernel=no nouveau\.modeset=0/],
    ['--warewulf', warewulfBefore, 'w1', /loud/],
    ['--xcat', xcat, 'cn1', /console=ttyS1,115200n8r/]
  ] as const) {
    writeFileSync(file, text)
    const before = c.state()
    const asked = await import_(c, option)
    t.equal(asked.code, 2, 'there is no terminal to ask on')
    t.match(asked.stderr, /is left out: docs\/moving\.md[\s\S]* would be created: /)
    t.match(asked.stderr, /nothing was imported: there is no terminal to ask on/)
    t.same(c.state(), before, 'a dry run changes nothing')
    const { code, stdout, stderr } = await import_(c, option, '--yes')
    t.equal(code, 0, stderr)
    t.match(stdout, /^imported: .*node: \d created/)
    t.notMatch(asked.stderr + stderr + stdout + c.log.join(''), /never-shown/)
    for (const image of Object.keys((await c.get('/config/osimage')).body.config.osimage)) {
      const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd', imagefile: 'image.tar' }
      const body = { config: { osimage: { [image]: files } } }
      t.equal((await c.post(`/config/osimage/${image}`, body)).status, 204)
    }
    for (const name of ['vmlinuz', 'initrd', 'image.tar'])
      writeFileSync(join(c.directory, 'files', name), 'x')
    const script = await c.get(`/config/node/${node}/_render/boot`)
    t.equal(script.status, 200, script.text)
    t.match(script.text, has)
    t.match(script.text, `svc.node=${node} `)
  }
})

t.test('a file that cannot be read changes nothing, and shows no words of it', async t => {
  const c = await Controller.start(t)
  const before = c.state()
  for (const [option, text, why] of [
    [
      '--warewulf',
      'nodes:\n  a: {}\n  a: {password: never-shown}\n',
      /given: line 3: duplicated mapping key/
    ],
    ['--xcat', 'never-shown\n', /given: line 1: must be NAME:/],
    ['--xcat', Buffer.from([0xff, 0xfe, 0]), /given: is no text in UTF-8/],
    ['--warewulf', Buffer.alloc(64 * 1024 * 1024 + 1, '#'), /given: is larger than 64 MiB/]
  ] as const) {
    writeFileSync(file, text)
    const { code, stdout, stderr } = await import_(c, option, '--yes')
    t.equal(code, 1)
    t.match(stderr, why)
    t.notMatch(stdout + stderr, /never-shown/)
    t.same(c.state(), before)
  }
})

t.test('what nodes contradict each other in is refused as a whole', async t => {
  const c = await Controller.start(t)
  const before = c.state()
  const card = '{default: {ipaddr: 10.0.0.1, netmask: 255.255.255.0}}'
  writeFileSync(file, `nodes:\n  a: {network devices: ${card}}\n  b: {network devices: ${card}}\n`)
  const { code, stderr } = await import_(c, '--warewulf', '--yes')
  t.equal(code, 1)
  t.match(stderr, /node b: interface BOOTIF: 10\.0\.0\.1 belongs to node a/)
  t.same(c.state(), before)
})

t.test('a hostile file writes nothing to the terminal', async t => {
  const c = await Controller.start(t)
  writeFileSync(file, 'nodes:\n  "a\\e[2J": {}\n  b: {"\\e[2J": x}\n')
  const { stdout, stderr } = await import_(c, '--warewulf', '--yes')
  t.match(stderr, /is left out/)
  t.notMatch(stdout + stderr, /\u001b/)
})

t.test('one system at a time, and not with a table', async t => {
  for (const options of [
    ['--warewulf', '--csv'],
    ['--warewulf', '--xcat']
  ]) {
    const { code, stderr } = await svcd(tree, ['import', ...options, file])
    t.equal(code, 2)
    t.match(stderr, /--warewulf belongs to import, without --csv or another system/)
  }
})
