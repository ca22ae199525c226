import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { InstallData } from '../../lib/boot/install-data.js'
import { base64 } from '../support/install-data.js'
import { truncated } from './fake-controller.js'
import { completed, exits, failed, image, install, type Plan, unpacked, without } from './install.js'
import { allShells, everyCase, type InstallingNode, type Setup, shells } from './installing-node.js'
import { sha256 } from './packed-image.js'

// They wait more than they work.
t.jobs = 8

/**
 * An installation up to the image in memory, whose checksum the script compares: what unpacking and the
 * network do then is the matter of other tests.
 */
const download = (t: Test, plan: Plan) => install(t, without(plan, 'inventory', 'unpack', 'network'))

const imagesum = sha256(image)
const wrong = Buffer.concat([image, Buffer.from('x')])
const torrent: Partial<InstallData> = { torrent: 'rocky9.torrent', provision_method: 'torrent', imagesum }
const answers = { '/files/rocky9.torrent': 'd8:announce' }
/**
 * What a torrent program does once it runs; its process is in /seeder, its directory in $d, its hook in $h.
 */
const programs = (then: string): Record<string, string> => ({
  // The last word is the torrent.
  aria2c: `for w; do case $w in --dir=*) d=\${w#--dir=} ;; --on-bt-*) h=\${w#*=} ;; esac; done
    [ -s "$w" ] || exit 1; echo $$ > /seeder; ${then}`,
  'transmission-cli': `while [ $# -gt 1 ]; do case $1 in -w) d=$2 ;; -f) h=$2 ;; esac; shift 2; done
    [ -s "$1" ] || exit 1; echo $$ > /seeder; ${then}`
})
/** The signal that a background process of a script ignores, but these programs do not. */
const stay = 'exec /usr/bin/env --default-signal=INT /usr/bin/sleep 600'
/** Fetches /seed and goes on seeding, as both do. */
const fetching = programs(`cp /seed "$d/rocky9.tar.gz"; "$h" 1 1 "$d/rocky9.tar.gz"; ${stay}`)
const isSeeding = 'kill -0 "$(cat /seeder)"'
/** The torrent is given up sooner, http is not. */
const sooner = (script: string) =>
  script
    .replace('"$torrent_idle" -ge "$_STALL"', '"$torrent_idle" -ge 1')
    .replace('\n_SPREAD=10\n', '\n_SPREAD=1\n')

/** Ways of a torrent program to fail. */
const failing: Record<string, string> = {
  'ends at once': 'exit 28',
  'finds no peer': stay,
  'stalls half-way': `head -c 99 /seed > "$d/rocky9.tar.gz"; ${stay}`,
  'says it is done and has nothing': `"$h"; ${stay}`,
  'is killed': 'kill -9 $$'
}

/** The torrent program was started, and is no more. */
const seederEnded = (machine: InstallingNode) => {
  const pid = Number(machine.text('seeder'))
  try {
    return pid === 0 || !process.kill(pid, 0)
  } catch {
    return true
  }
}

for (const shell of allShells) {
  for (const name of Object.keys(fetching)) {
    // Both programs are ended by the same lines. What transmission-cli has of its own is shown in two shells.
    const isEvery = name === 'aria2c' || process.env.SVCD_LONG !== undefined
    if (!isEvery && shell !== 'ash' && shell !== 'klibc') continue
    const program = (of: Record<string, string>) => ({ [name]: of[name] ?? '' })
    const prepare = (machine: InstallingNode) => machine.write('seed', image)

    t.test(`torrent by ${name}: it seeds until the end, ${shell}`, async t => {
      const done = await unpacked(t, {
        shell,
        answers,
        data: { ...torrent, postscript: base64(isSeeding) },
        programs: program(fetching),
        prepare
      })
      completed(t, done)
      t.strictSame(done.controller.gets(), ['/files/rocky9.torrent'], 'the image did not come by http')
      t.equal(done.machine.read('etc/os-release'), 'ID=test\n')
      t.ok(seederEnded(done.machine))
      t.notOk(done.machine.has('svctmp/torrent'), 'its space is free')
      t.notOk(done.machine.has('svctmp/image'))
    })

    if (shell === 'dash') continue
    t.test(`torrent by ${name}: the seeding ends with a failed run, ${shell}`, async t => {
      const done = await download(t, {
        shell,
        answers,
        data: { ...torrent, postscript: base64(`${isSeeding} && exit 7`) },
        programs: program(fetching),
        prepare
      })
      failed(t, done, 'postscript', /ended with status 7/)
      t.ok(seederEnded(done.machine))
      t.notOk(done.machine.has('svctmp/torrent'))
    })

    for (const [what, then] of Object.entries(failing)) {
      if (!(isEvery && everyCase(shell)) && what !== 'stalls half-way') continue
      t.test(`torrent by ${name}: http when it ${what}, ${shell}`, async t => {
        const done = await download(t, {
          shell,
          answers,
          data: torrent,
          programs: program(programs(then)),
          prepare,
          edit: sooner
        })
        completed(t, done)
        t.match(done.run.output, /the torrent did not deliver rocky9\.tar\.gz: \w+/)
        t.match(done.run.output, "method 'torrent' failed")
        t.notMatch(done.run.output, /not found|syntax|invalid/)
        t.strictSame(done.controller.gets(), ['/files/rocky9.torrent', '/files/rocky9.tar.gz'])
        t.ok(seederEnded(done.machine))
        t.notOk(done.machine.has('svctmp/torrent'))
      })
    }

    if (!isEvery || !everyCase(shell)) continue
    // rules 9.10
    t.test(`torrent by ${name}: wrong bytes are not unpacked, http is tried, ${shell}`, async t => {
      const http = { '/files/rocky9.tar.gz': wrong }
      for (const more of [{}, http]) {
        const done = await unpacked(t, {
          shell,
          answers: { ...answers, ...more },
          data: { ...torrent, postscript: base64(`! ${isSeeding}`) },
          programs: program(fetching),
          prepare: machine => machine.write('seed', wrong)
        })
        t.match(done.run.output, 'wrong checksum')
        t.strictSame(done.controller.gets(), ['/files/rocky9.torrent', '/files/rocky9.tar.gz'])
        t.ok(seederEnded(done.machine))
        if (more !== http) completed(t, done)
        else {
          failed(t, done, 'download', /wrong checksum of rocky9\.tar\.gz/)
          t.notOk(done.machine.has('result/etc'), 'nothing was unpacked')
        }
      }
    })
  }
}

for (const shell of shells) {
  const lacking: Record<string, Omit<Plan, 'shell'>> = {
    'a torrent program': { answers },
    'the torrent at the controller': { programs: fetching }
  }
  for (const [i, [what, plan]] of Object.entries(lacking).entries()) {
    if (i > 0 && !everyCase(shell)) continue
    t.test(`torrent without ${what} falls back to http, ${shell}`, async t => {
      const done = await download(t, { shell, data: torrent, ...plan })
      completed(t, done)
      t.match(done.run.output, "method 'torrent' failed")
      t.ok(done.controller.gets().includes('/files/rocky9.tar.gz'))
    })
  }

  t.test(`a wrong checksum is never unpacked, ${shell}`, async t => {
    const done = await unpacked(t, { shell, data: { imagesum }, answers: { '/files/rocky9.tar.gz': wrong } })
    failed(t, done, 'download', /wrong checksum of rocky9\.tar\.gz/)
    t.notOk(done.machine.has('result/etc'), 'nothing was unpacked')
  })

  t.test(`an unknown method is reported and the fallback used, ${shell}`, async t => {
    const data = { provision_method: 'pigeon', provision_fallback: 'http', imagesum }
    const done = await download(t, { shell, data })
    completed(t, done)
    t.match(done.run.output, "unknown provision method 'pigeon'")
  })
}

const downloaders: Record<string, Setup> = {
  curl: { shell: 'dash' },
  'GNU wget': { shell: 'dash', without: ['curl'] },
  'busybox wget': { shell: 'ash' }
}

for (const [name, setup] of Object.entries(downloaders)) {
  for (const sum of ['', imagesum]) {
    t.test(`a truncated download never counts, ${name}, checksum ${sum ? 'known' : 'unknown'}`, async t => {
      const answers = { '/files/rocky9.tar.gz': truncated(image) }
      const done = await unpacked(t, { ...setup, answers, data: { imagesum: sum } })
      failed(t, done, 'download', /cannot fetch/)
      t.notOk(done.machine.has('result/etc'))
    })
  }

  t.test(`an error answer is no image, and the reason, ${name}`, async t => {
    for (const status of [304, 503]) {
      const done = await download(t, {
        ...setup,
        answers: { '/files/rocky9.tar.gz': response => response.writeHead(status).end(image) }
      })
      failed(t, done, 'download', new RegExp(`cannot fetch .*/files/rocky9\\.tar\\.gz: .*${status}`))
    }
  })

  // Busybox's wget does not show what a refusal says; the run fails then, and the node begins again.
  if (name !== 'busybox wget')
    t.test(`a controller that has too much to do is asked again when it says, ${name}`, async t => {
      let refusals = 0
      const busy = (response: ServerResponse) => {
        if (refusals++ < 2) response.writeHead(503, { 'retry-after': '1' }).end('{"message":"busy"}\n')
        else response.writeHead(200, { 'content-length': image.length }).end(image)
      }
      const answers = { '/files/rocky9.tar.gz': busy }
      const done = await download(t, { ...setup, answers, data: { imagesum } })
      completed(t, done)
      t.equal(done.controller.gets().length, 3)
      t.equal(done.run.output.match(/the controller is busy, next try in 1 s/g)?.length, 2)
    })

  t.test(`the reasons of torrent and http are both reported, ${name}`, async t => {
    const answers = { '/files/rocky9.tar.gz': (response: ServerResponse) => response.destroy() }
    const done = await download(t, { ...setup, answers, data: torrent })
    failed(t, done, 'download', /torrent: neither aria2c nor .*; http: cannot fetch \S+: \S+/)
  })

  // Busybox's has no way but its arguments.
  if (name !== 'busybox wget')
    t.test(`the node's token is in no argument, and in a file of root's alone, ${name}`, async t => {
      const log = '[ "$*" = --version ] || { echo "$*"; ls -l /svctmp/http; } >> /log; '
      const program = name === 'curl' ? 'curl' : 'wget'
      const plan: Plan = {
        ...setup,
        programs: { [program]: `${log}exec /usr/bin/${program} "$@"` },
        prepare: machine =>
          machine.write('svctmp/http', 'header = x-access-tokens: of an earlier run\n', 0o644)
      }
      // The inventory is sent, as it has the token too.
      const done = await install(t, without(plan, 'unpack', 'network'))
      completed(t, done)
      t.notMatch(done.machine.text('log'), 'the.node.token')
      t.match(done.machine.text('log'), /^-rw------- /m)
      t.notMatch(done.machine.text('log'), /^-rw-r/m)
      for (const { headers } of done.controller.requests)
        t.equal(headers['x-access-tokens'], 'the.node.token')
    })

  t.test(`the IPv6 form of SVC_URL is used and works, ${name}`, async t => {
    const done = await download(t, { ...setup, address: '::1', data: { api_protocol: 'http:', imagesum } })
    completed(t, done)
    t.match(done.run.output, /svc: step completed/)
  })

  if (name === 'GNU wget') continue
  t.test(`a stalled download is given up, ${name}`, async t => {
    const done = await download(t, {
      ...setup,
      edit: script => script.replace('\n_STALL=60\n', '\n_STALL=1\n'),
      answers: {
        '/files/rocky9.tar.gz': response => response.writeHead(200, { 'content-length': 99 }).write('x')
      }
    })
    failed(t, done, 'download', name === 'curl' ? /too slow/ : /nothing came for 1 s/)
  })
}

t.test('a redirect is not followed by curl', async t => {
  const done = await download(t, {
    shell: 'bash',
    answers: {
      '/files/rocky9.tar.gz': response => response.writeHead(302, { location: '/files/other' }).end()
    }
  })
  failed(t, done, 'download', /cannot fetch/)
})

t.test('the path of a front server is kept', async t => {
  const done = await install(t, {
    shell: 'bash',
    prepare: (_, controller) => controller.files.set('/cluster/a/files/rocky9.tar.gz', image),
    edit: script => script.replace(/(_URL_PATH='http:[^']*)'/, "$1/cluster/a/'")
  })
  exits(t, [done.run], [0])
  t.ok(done.controller.requests.every(({ url }) => url.startsWith('/cluster/a/')))
})

t.test('an image that cannot be', async t => {
  const noImage = await unpacked(t, { shell: 'ash', data: { imagefile: '' } })
  failed(t, noImage, 'download', /OS image rocky9 has no packed image file/)
  const slash = await unpacked(t, { shell: 'ash', data: { imagefile: '../x.tar.gz' } })
  failed(t, slash, 'download', /slash/)
  const suffix = await unpacked(t, {
    shell: 'ash',
    data: { imagefile: 'image.zip' },
    answers: { '/files/image.zip': image }
  })
  failed(t, suffix, 'unpack', /suffix/)
  const archive = await unpacked(t, {
    shell: 'ash',
    answers: { '/files/rocky9.tar.gz': image.subarray(0, -20) }
  })
  failed(t, archive, 'unpack', /cannot unpack rocky9\.tar\.gz: .*(unexpected end|short read)/)
  const zstd = await unpacked(t, {
    shell: 'ash',
    data: { imagefile: 'image.tar.zst' },
    answers: { '/files/image.tar.zst': image }
  })
  failed(t, zstd, 'unpack', /zstd is not in this initramfs/)
  const unchecked = await unpacked(t, {
    shell: 'bash',
    data: { imagesum },
    without: ['sha256sum', 'openssl']
  })
  failed(t, unchecked, 'download', /cannot be checked/)
  const openssl = await unpacked(t, { shell: 'bash', data: { imagesum }, without: ['sha256sum'] })
  completed(t, openssl)
})

// rules 5.6
t.test('INSECURE reaches the downloader', async t => {
  const log = 'echo "$0 $*" >> /log; '
  const curl = await download(t, {
    shell: 'bash',
    data: { insecure: true, imagesum },
    programs: { curl: `${log}exec /usr/bin/curl "$@"`, wget: 'exit 1' }
  })
  completed(t, curl)
  t.match(curl.machine.text('log'), / -k /)
  const wget = await download(t, {
    shell: 'bash',
    data: { insecure: true, imagesum },
    without: ['curl'],
    programs: { wget: `${log}exec /usr/bin/wget "$@"` }
  })
  completed(t, wget)
  t.match(wget.machine.text('log'), / --no-check-certificate /)
})

t.test('a torrent program that heeds no signal is ended all the same', async t => {
  const deaf = programs(`trap '' INT TERM; cp /seed "$d/rocky9.tar.gz"; "$h"; while :; do sleep 0.1; done`)
  const done = await download(t, {
    shell: 'ash',
    answers,
    data: torrent,
    programs: { aria2c: deaf.aria2c ?? '' },
    prepare: machine => machine.write('seed', image)
  })
  completed(t, done)
  t.ok(seederEnded(done.machine))
})

for (const shell of shells) {
  // rules 9.6
  t.test(`an image without a torrent: http is the plan, and no error, ${shell}`, async t => {
    const data = { provision_method: 'torrent', provision_fallback: 'http', torrent: '', imagesum }
    const done = everyCase(shell) ? await install(t, { shell, data }) : await download(t, { shell, data })
    completed(t, done)
    t.match(done.run.output, /^svc: fetching rocky9\.tar\.gz by 'http'$/m)
    t.notMatch(done.run.output, /torrent|fail|fallback/)

    const gone = await download(t, {
      shell,
      data,
      answers: { '/files/rocky9.tar.gz': r => r.writeHead(404).end() }
    })
    failed(t, gone, 'download', /: download: cannot fetch http/)
    t.notMatch(gone.run.output, 'torrent', 'and where it fails, nothing is said of a torrent')

    if (!everyCase(shell)) return
    const only = await download(t, { shell, data: { ...data, provision_fallback: 'torrent' } })
    failed(t, only, 'download', /the image has no torrent/)
    const other = { ...data, provision_method: 'http', provision_fallback: 'torrent' }
    const both = await download(t, {
      shell,
      data: other,
      answers: { '/files/rocky9.tar.gz': r => r.writeHead(404).end() }
    })
    failed(t, both, 'download', /http: cannot fetch .*; torrent: the image has no torrent/)
  })
}
