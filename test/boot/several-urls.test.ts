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
    .replace(/(chain|imgfetch) --timeout \d+ /g, '$1 ')
    .replace(
      /^((?:chain|imgfetch) .*?)(?: && goto (\w+))? \|\|\n(?:(?:echo|chain|imgfetch) .*\n){5}(.*)(?:\n:\2$)?/gm,
      '$1 || $3'
    )
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
  // A full controller sends a machine away for up to 30 s, and iPXE counts that as silence.
  const tries = (command: string, path: string, patience: number, then = '') =>
    [
      [a, `: trying ${b}`],
      [b, `: trying ${c}`],
      [c, '']
    ]
      .map(
        ([url, next]) =>
          `${command.replace(' ', ` --timeout ${patience} `)} ${url}${path}${then} ||\necho svcd: ${url} does not answer, or refuses${next}`
      )
      .join('\n')
  const found = /\/boot\/search\/mac\/\$\{netX\/mac\}\?serial=\S+/.exec(one.menu)?.[0] ?? 'none'
  t.match(several.menu, `\n${tries('chain --replace', found, 45000)}\ngoto failed\n`)
  t.match(several.menu, `\necho svcd: ${a} and ${b} and ${c} do not answer, or refuse\n`)
  t.match(
    several.kernel,
    `\n${tries('imgfetch --name kernel', '/boot/vmlinuz', 120000, ' && goto kernel_there')}\ngoto failed\n:kernel_there\nimgload kernel `
  )
  t.match(
    several.kernel,
    `\n${tries('imgfetch --name initrd.img', '/boot/initrd.img', 120000, ' && goto initrd_there')}\ngoto failed\n:initrd_there\nimgexec kernel `
  )
  t.match(several.kernel, `\n${tries('chain --replace', '/boot/short', 45000)}\nsleep 10\n`)
  t.match(several.kernel, ` svc.url=${a} svc.urls=${b},${c} svc.node=node001 `)
  t.match(several.error, `\n${tries('chain --replace', '/boot', 45000)}\ngoto failed\n`)
})

t.test('the controller that renders a script names itself first, wherever it stands in the list', async t => {
  for (const [overrides, first] of [
    [['controller.address=10.141.255.253'], b],
    [['controller.address=10.141.255.254'], a],
    [['controller.address=10.141.9.9'], a],
    [['controller.name=c9', 'controller.address=10.141.9.9'], 'http://c9.cluster:7050']
  ] as const) {
    const controller = await Controller.start(t, `http.url=${a},${b},http://c9.cluster:7050`, ...overrides)
    await controller.cluster()
    await controller.post('/config/node/node001', { group: 'compute', macaddr: mac })
    const { text } = await controller.get(pages.kernel, none)
    t.equal(/^imgfetch --timeout \d+ --name kernel (\S+)\/boot\/vmlinuz /m.exec(text)?.[1], first)
    const others = [a, b, 'http://c9.cluster:7050'].filter(url => url !== first).join(',')
    t.match(text, ` svc.url=${first} svc.urls=${others} svc.node=`)
    t.match((await controller.get('/boot', none)).text, `--replace ${first}/boot/search/mac/`)
    const install = (await controller.get('/config/node/node001/_render/install')).text
    t.match(install, `\nSVC_API_ADDRESS='${new URL(first).hostname}'\n`)
    t.match(install, `\n_URLS='${others.replaceAll(',', ' ')}'\n`)
  }
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
