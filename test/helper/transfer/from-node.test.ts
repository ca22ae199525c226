import { existsSync } from 'node:fs'
import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { compareTrees } from '../../image/compare-trees.js'
import { age, remember, requireNode, startNode } from '../../image/node.js'
import { richTree } from '../../image/rich-tree.js'
import { beginning } from '../../image/taking.js'
import { output } from '../../support/programs.js'

requireNode()

t.test('a grab takes all that a file is, a second one finds nothing to do', async t => {
  const { remote, root, take, shell, path } = await beginning(t)
  const hostKeys = ['ed25519', 'ecdsa'].map(type => `./etc/ssh/ssh_host_${type}_key`)
  richTree(t, join(root, 'rich'))
  await shell("mkdir etc/netplan; touch etc/netplan/60-svc.yaml run/pid tmp/x var/tmp/y '\\#012'")
  await age(root)
  await startNode(t, root, [], remote.port)
  const compared = {
    holes: false,
    without: [
      ...['./etc/hostname', './etc/machine-id', './etc/netplan/60-svc.yaml', './tmp/x', './var/tmp/y'],
      ...[...hostKeys, ...hostKeys.map(key => `${key}.pub`), './dev', './proc', './run']
    ]
  }

  const { changes, fractions, lines } = await take({ work: path('image') })
  t.strictSame(await compareTrees(root, path('image'), compared), [])
  t.strictSame((await readdir(path('image/etc'))).sort(), [
    ...['group', 'machine-id', 'motd', 'netplan', 'passwd', 'ssh']
  ])
  t.strictSame(await readdir(path('image/etc/ssh')), ['sshd_config'])
  t.equal((await stat(path('image/etc/machine-id'))).size, 0, 'systemd makes a node its own')
  for (const name of ['run', 'dev', 'proc', 'tmp', 'var/tmp', 'etc/netplan'])
    t.strictSame(await readdir(path(`image/${name}`)), [], `${name} is there, empty`)
  const { blocks, size } = await stat(path('image/rich/sparse'))
  t.ok(blocks * 512 < size / 2, 'a sparse file stays one')
  for (const name of ['etc/motd', 'rich/fifo', 'rich/new\\#012line', 'rich/a\\#011tab\\#015return\\#033[31m'])
    t.ok(changes.includes(`new ${name}`))
  t.ok(changes.includes('new \\#134#012') && changes.includes('new rich/käse'))
  t.equal(
    changes.length,
    (await output('find', [path('image'), '-printf', '.'])).length - 1,
    'each file once'
  )
  t.strictSame(
    fractions,
    fractions.toSorted((a, b) => a - b)
  )
  t.equal(fractions.at(-1), 1)
  t.strictSame(lines, [])

  const second = await take({ tree: path('image'), work: path('second') })
  t.strictSame(second.changes, [])
  t.strictSame(await compareTrees(path('image'), path('second'), { holes: false, without: ['./run'] }), [])
  t.strictSame((await take({ tree: path('image'), dryrun: true })).changes, [])
})

// rules 9.7
t.test('a grab over an image: what changed, what is gone, what is left out', async t => {
  const { remote, root, take, shell, path } = await beginning(t)
  await shell(`mkdir -p var/log data/cache 'data/odd [x]' secret; echo 1 > var/log/syslog
    echo 1 > data/file; echo 1 > data/gone; echo 1 > data/cache/c; echo 1 > 'data/odd [x]/*'; echo 1 > data/odd
    echo s > secret/key; touch "$(printf 'data/two\\nlines')"; mkdir data/away; echo 1 > data/away/1
    printf 'aaaa' > data/same; touch -d 2020-01-01 data/same`)
  await startNode(t, root, [], remote.port)
  await take({ work: path('image') })

  await shell(`echo 22 > data/file; rm -r data/gone data/away; chmod 600 etc/motd; echo 2 > var/log/new
    echo 22 > data/cache/c; echo 22 > 'data/odd [x]/*'; echo 22 > data/odd; rm "$(printf 'data/two\\nlines')"
    echo 2 > 'secret [of] *'; echo 2 > 'secret o lost'; rm -r secret; ln -s file data/link; echo node > etc/hostname; rmdir srv 2> /dev/null || :`)
  // The image's own files: some are left out of a grab, one is not on the node.
  const image = (script: string) => output('sh', ['-c', `cd "$1" && ${script}`, '', path('image')])
  await image(
    'echo image > etc/hostname; echo image > dev/console; echo mine > data/mine; echo uuid > etc/machine-id'
  )
  const changedInImage = await remember(path('image'))
  const exclude = [
    '/var/log/*',
    'data/cache',
    'data/odd \\[x]/\\*',
    'data/two\nlines',
    '/secret/',
    '$(touch /tmp/grab-was-here)',
    '; touch /tmp/grab-was-here',
    '- /data/file',
    '!'
  ]
  const own = ['//secret [of] *']
  const expected = [
    ...['attributes etc/motd', 'changed data/file', 'changed data/odd', 'deleted data/away/'],
    ...['deleted data/away/1', 'deleted data/gone', 'deleted data/mine', 'new data/link', 'new secret o lost']
  ]

  const dry = await take({ tree: path('image'), exclude, own, dryrun: true })
  t.strictSame(dry.changes.toSorted(), expected)
  t.notOk(existsSync(path('work')), 'a dry run makes nothing')
  t.strictSame(await changedInImage(), [])

  const real = await take({ tree: path('image'), exclude, own })
  t.strictSame(real.changes.toSorted(), expected)
  t.strictSame(await changedInImage(), [], 'the image itself is only read')
  const text = (name: string) => readFile(path(`work/${name}`), 'utf8')
  t.equal(await text('data/file'), '22\n')
  t.equal(await readlink(path('work/data/link')), 'file')
  t.equal((await stat(path('work/etc/motd'))).mode & 0o777, 0o600)
  for (const name of ['data/gone', 'data/away', 'data/mine', 'var/log/new'])
    t.notOk(existsSync(path(`work/${name}`)))
  t.equal(await text('var/log/syslog'), '1\n', 'what is left out stays as the image has it')
  for (const name of ['data/cache/c', 'data/odd [x]/*']) t.equal(await text(name), '1\n')
  t.equal(await text('secret/key'), 's\n')
  t.ok(existsSync(path('work/data/two\nlines')))
  for (const name of ['etc/hostname', 'dev/console']) t.equal(await text(name), 'image\n')
  t.equal(await text('etc/machine-id'), 'uuid\n')
  t.notOk(existsSync('/tmp/grab-was-here'))
})

t.test('a dry run without an image lists all as new', async t => {
  const { remote, root, take, path } = await beginning(t)
  await startNode(t, root, [], remote.port)
  const { changes } = await take({ dryrun: true })
  t.ok(changes.includes('new etc/motd') && changes.includes('new usr/bin/rsync'))
  t.ok(changes.every(change => change.startsWith('new ')))
  t.notOk(existsSync(path('work')))
})
