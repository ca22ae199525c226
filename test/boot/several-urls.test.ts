import t from 'tap'
import { Controller } from '../support/controller.js'

// rules 4.28: several controllers by the URLs of the ini.

const [a, b, c] = ['http://10.141.255.254:7050', 'http://10.141.255.253:7050', 'https://[fd00::1]:7443']
const mac = '52:54:00:00:00:01'
const none = { token: null }
const pages = {
  menu: '/boot',
  short: '/boot/short',
  disk: '/boot/disk',
  unknown: '/boot/search/mac/52:54:00:00:00:99',
  kernel: `/boot/search/mac/${mac}`,
  error: '/boot/manual/hostname/nobody'
}

async function scripts(url: string): Promise<Record<keyof typeof pages, string>> {
  const controller = await Controller.start(t, `http.url=${url}`)
  await controller.cluster()
  await controller.post('/config/node/node001', { group: 'compute', macaddr: mac })
  const texts = await Promise.all(
    Object.entries(pages).map(async ([page, path]) => [page, (await controller.get(path, none)).text])
  )
  return Object.fromEntries(texts)
}

/** A script for several controllers as it would be for the first of them alone. */
const forOne = (script: string) =>
  script
    .replace(/(chain|imgfetch) --timeout 15000 /g, '$1 ')
    .replace(/^((?:chain|imgfetch) .*?) \|\| .* \|\| ([^|]*)$/gm, '$1 || $2')
    .replace(/ svc\.urls=\S+/, '')
    .replace(/^echo svcd: .* do not answer, or refuse$/m, `echo svcd: ${a} does not answer, or refuses`)

t.test('each command that fetches is tried with one URL after the other', async t => {
  const [one, several] = [await scripts(a), await scripts(`${a}, ${b},${c}`)]
  for (const [page, script] of Object.entries(several)) {
    const alone = one[page as keyof typeof pages]
    t.equal(forOne(script), alone, `${page}: with one URL it is what it was`)
    t.notMatch(alone, /(chain|imgfetch) --timeout|svc\.urls/, `${page}: and has nothing of the others`)
    if (page !== 'disk') t.not(script, alone)
  }
  const tries = (command: string, path: string) =>
    [a, b, c].map(url => `${command.replace(' ', ' --timeout 15000 ')} ${url}${path}`).join(' || ')
  t.match(several.menu, `\n${tries('chain --replace', '/boot/search/mac/${netX/mac}')} || goto failed\n`)
  t.match(several.menu, `\necho svcd: ${a} and ${b} and ${c} do not answer, or refuse\n`)
  t.match(several.kernel, `\n${tries('imgfetch --name kernel', '/boot/vmlinuz')} || goto failed\n`)
  t.match(several.kernel, `\n${tries('imgfetch --name initrd.img', '/boot/initrd.img')} || goto failed\n`)
  t.match(several.kernel, `\n${tries('chain --replace', '/boot/short')} || sleep 10\n`)
  t.match(several.kernel, ` svc.url=${a} svc.urls=${b},${c} svc.node=node001 `)
  t.match(several.error, `\n${tries('chain --replace', '/boot')} || goto failed\n`)
})

t.test('the install script and the kickstart name all of them, the image comes from the first', async t => {
  const controller = await Controller.start(t, `http.url=${a},${b},${c}`)
  await controller.cluster()
  await controller.post('/config/node/node001', { group: 'compute', macaddr: mac })
  const rendered = async (what: string) => (await controller.get(`/config/node/node001/_render/${what}`)).text
  t.match(await rendered('install'), `\n_URLS='${b} ${c}'\n`)
  const kickstart = await rendered('kickstart')
  t.match(kickstart, `\n_URLS=$(value '${Buffer.from(`${b} ${c}`).toString('base64')}')\n`)
  t.match(kickstart, `\nliveimg --url="${a}/files/compute.tar.gz"`)
})
