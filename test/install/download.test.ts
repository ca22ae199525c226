import t from 'tap'
import type { InstallData } from '../../lib/boot/install-data.js'
import { sha256 } from './image.js'
import { completed, exits, failed, image, install } from './install.js'
import { type Setup, shells } from './machine.js'
import { truncated } from './server.js'

const imagesum = sha256(image)
const wrong = Buffer.concat([image, Buffer.from('x')])
const torrent: Partial<InstallData> = { torrent: 'rocky9.torrent', provision_method: 'torrent', imagesum }
const answers = { '/files/rocky9.torrent': 'd8:announce' }
/** Does what aria2c does: the last word is the torrent, --dir= says where the file goes. */
const aria2c =
  'for w; do case $w in --dir=*) d=${w#--dir=} ;; esac; done; [ -s "$w" ] && cp /seed "$d/rocky9.tar.gz"'
/** Stays and seeds when done, like transmission-cli; -w is the directory, -f the script to call. */
const transmission = 'cp /seed "$2/rocky9.tar.gz"; "$4" & while :; do sleep 0.1; done'

for (const shell of shells) {
  t.test(`torrent without a torrent program falls back to http, ${shell}`, async t => {
    const done = await install(t, { shell, answers, data: torrent })
    completed(t, done)
    t.match(done.run.output, "method 'torrent' failed")
    t.ok(done.controller.gets().includes('/files/rocky9.tar.gz'))
  })

  for (const [name, program] of Object.entries({ aria2c, 'transmission-cli': transmission })) {
    t.test(`torrent by ${name}, ${shell}`, async t => {
      const done = await install(t, {
        shell,
        answers,
        data: torrent,
        programs: { [name]: program },
        prepare: machine => machine.write('seed', image)
      })
      completed(t, done)
      t.strictSame(done.controller.gets(), ['/files/rocky9.torrent'], 'the image did not come by http')
      t.equal(done.machine.read('etc/os-release'), 'ID=test\n')
    })
  }

  t.test(`wrong bytes by torrent are not unpacked, http is tried, ${shell}`, async t => {
    const done = await install(t, {
      shell,
      answers,
      data: torrent,
      programs: { aria2c },
      prepare: machine => machine.write('seed', wrong)
    })
    completed(t, done)
    t.match(done.run.output, 'wrong checksum')
  })

  t.test(`a wrong checksum is never unpacked, ${shell}`, async t => {
    const done = await install(t, { shell, data: { imagesum }, answers: { '/files/rocky9.tar.gz': wrong } })
    failed(t, done, 'download', /wrong checksum of rocky9\.tar\.gz/)
    t.notOk(done.machine.has('result/etc'), 'nothing was unpacked')
  })

  t.test(`an unknown method is reported and the fallback used, ${shell}`, async t => {
    const done = await install(t, { shell, data: { provision_method: 'pigeon', provision_fallback: 'http' } })
    completed(t, done)
    t.match(done.run.output, "unknown provision method 'pigeon'")
  })
}

const downloaders: Record<string, Setup> = {
  curl: { shell: 'bash' },
  'GNU wget': { shell: 'bash', without: ['curl'] },
  'busybox wget': { shell: 'ash' }
}

for (const [name, setup] of Object.entries(downloaders)) {
  for (const sum of ['', imagesum]) {
    t.test(`a truncated download never counts, ${name}, checksum ${sum ? 'known' : 'unknown'}`, async t => {
      const answers = { '/files/rocky9.tar.gz': truncated(image) }
      const done = await install(t, { ...setup, answers, data: { imagesum: sum } })
      failed(t, done, 'download', /cannot fetch/)
      t.notOk(done.machine.has('result/etc'))
    })
  }

  t.test(`an error answer is no image, ${name}`, async t => {
    for (const status of [304, 503]) {
      const done = await install(t, {
        ...setup,
        answers: { '/files/rocky9.tar.gz': response => response.writeHead(status).end(image) }
      })
      failed(t, done, 'download', /cannot fetch/)
    }
  })

  t.test(`the IPv6 form of SVC_URL is used and works, ${name}`, async t => {
    const done = await install(t, { ...setup, address: '::1', data: { api_protocol: 'http:' } })
    completed(t, done)
    t.match(done.run.output, /svc: step completed/)
  })

  if (name === 'GNU wget') continue
  t.test(`a stalled download is given up, ${name}`, async t => {
    const done = await install(t, {
      ...setup,
      edit: script => script.replace('\n_STALL=60\n', '\n_STALL=1\n'),
      answers: {
        '/files/rocky9.tar.gz': response => response.writeHead(200, { 'content-length': 99 }).write('x')
      }
    })
    failed(t, done, 'download', /cannot fetch/)
  })
}

t.test('a redirect is not followed by curl', async t => {
  const done = await install(t, {
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
  const noImage = await install(t, { shell: 'ash', data: { imagefile: '' } })
  failed(t, noImage, 'download', /OS image rocky9 has no packed image file/)
  const slash = await install(t, { shell: 'ash', data: { imagefile: '../x.tar.gz' } })
  failed(t, slash, 'download', /slash/)
  const suffix = await install(t, {
    shell: 'ash',
    data: { imagefile: 'image.zip' },
    answers: { '/files/image.zip': image }
  })
  failed(t, suffix, 'unpack', /suffix/)
  const archive = await install(t, {
    shell: 'ash',
    answers: { '/files/rocky9.tar.gz': image.subarray(0, -20) }
  })
  failed(t, archive, 'unpack', /cannot unpack/)
  const zstd = await install(t, {
    shell: 'ash',
    data: { imagefile: 'image.tar.zst' },
    answers: { '/files/image.tar.zst': image }
  })
  failed(t, zstd, 'unpack', /zstd is not in this initramfs/)
  const unchecked = await install(t, { shell: 'bash', data: { imagesum }, without: ['sha256sum', 'openssl'] })
  failed(t, unchecked, 'download', /cannot be checked/)
  const openssl = await install(t, { shell: 'bash', data: { imagesum }, without: ['sha256sum'] })
  completed(t, openssl)
})

t.test('INSECURE reaches the downloader', async t => {
  const log = 'echo "$0 $*" >> /log; '
  const curl = await install(t, {
    shell: 'bash',
    data: { insecure: true },
    programs: { curl: `${log}exec /usr/bin/curl "$@"`, wget: 'exit 1' }
  })
  completed(t, curl)
  t.match(curl.machine.text('log'), / -k /)
  const wget = await install(t, {
    shell: 'bash',
    data: { insecure: true },
    without: ['curl'],
    programs: { wget: `${log}exec /usr/bin/wget "$@"` }
  })
  completed(t, wget)
  t.match(wget.machine.text('log'), / --no-check-certificate /)
})
