// The figures of bench/history.md about the status page:
// node test/compile.mjs && node .cache/js/test/long/page/figures.js [paint] [streams] [pages] [memory]
import { mkdtempSync, readFileSync } from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Page } from 'playwright-core'
import { inParallel } from '../../../lib/base/concurrency.js'
import { browser, MANY_VIEWERS, open, Stage } from './stage.js'

const wanted = new Set(process.argv.slice(2))
const wants = (name: string) => wanted.size === 0 || wanted.has(name)
const look = { theme: 'light', width: 1360, height: 860 } as const
const start = (nodes: number) => Stage.start(mkdtempSync(join(tmpdir(), 'page-')), nodes)
/** Waits until an expression is true in the page, whose policy forbids to evaluate texts by itself. */
const holds = async (page: Page, expression: string) => {
  while (!(await page.evaluate(expression))) await sleep(5)
}
const median = (values: number[]) => [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0
const pidOf = (stage: Stage) => stage.daemon.child?.process.pid ?? 0
/** Seconds of CPU that a process has used. */
const cpuOf = (pid: number) => {
  const [, rest = ''] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')
  const fields = rest.split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}
const residentOf = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024

if (wants('paint'))
  for (const nodes of [2000, 10000]) {
    const stage = await start(nodes)
    const on = await browser()
    const firsts: number[] = []
    const grids: number[] = []
    for (let i = 0; i < 12; i++) {
      const { page, context } = await open(on, stage, look, stage.token)
      await holds(page, "performance.getEntriesByName('svcd-grid').length > 0")
      const [first, grid] = (await page.evaluate(
        "[performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, performance.getEntriesByName('svcd-grid')[0].startTime]"
      )) as [number, number]
      firsts.push(Math.round(first))
      grids.push(Math.round(grid))
      await context.close()
      // The overview is not shared with the one before.
      await sleep(1200)
    }
    console.log(
      `${nodes} nodes: first paint median ${median(firsts)} ms (${firsts}); grid painted median ${median(grids)} ms (${grids})`
    )
    const { page } = await open(on, stage, look, stage.token)
    await page.getByText('live', { exact: true }).waitFor()
    const took: number[] = []
    for (let i = 0; i < 10; i++) {
      const count = page.getByRole('button', { name: /failed/ })
      const before = await count.textContent()
      const seen = holds(
        page,
        `document.querySelector('[data-key=failed]').textContent !== ${JSON.stringify(before)}`
      )
      const began = performance.now()
      await stage.report(stage.names(nodes)[i * 3] ?? '', 'installer.failed: test')
      await seen
      took.push(Math.round(performance.now() - began))
      await sleep(200)
    }
    console.log(`${nodes} nodes: a change on the screen after median ${median(took)} ms (${took})`)
    await on.close()
    await stage.stop()
  }

/** A stream of events, as a page has it; throws Error where it is refused. */
const stream = (stage: Stage, token: string) =>
  new Promise<IncomingMessage>((resolve, reject) => {
    get(`${stage.url}/monitor/events`, { agent: false, headers: { 'x-access-tokens': token } }, answer => {
      answer.resume()
      if (answer.statusCode !== 200) return reject(new Error(`/monitor/events: ${answer.statusCode}`))
      resolve(answer)
    }).on('error', reject)
  })

if (wants('streams')) {
  const stage = await start(2000)
  const pid = pidOf(stage)
  const cpu = async (seconds: number) => {
    const before = cpuOf(pid)
    await sleep(seconds * 1000)
    return ((cpuOf(pid) - before) / seconds) * 100
  }
  await sleep(5000)
  const idle = await cpu(40)
  const tokens = await Promise.all(Array.from({ length: MANY_VIEWERS }, (_, i) => stage.logIn(`viewer${i}`)))
  const streams = await Promise.all(
    Array.from({ length: 200 }, (_, i) => stream(stage, tokens[i % MANY_VIEWERS] ?? ''))
  )
  await sleep(3000)
  const followed = await cpu(40)
  console.log(
    `CPU of the daemon while nothing changes: ${idle.toFixed(2)} %; with 200 streams ${followed.toFixed(2)} %`
  )
  for (const each of streams) each.destroy()
  await stage.stop()
}

if (wants('pages')) {
  const stage = await start(2000)
  const pid = pidOf(stage)
  const tokens = await Promise.all(Array.from({ length: MANY_VIEWERS }, (_, i) => stage.logIn(`viewer${i}`)))
  const on = await browser()
  const problems: string[][] = []
  await inParallel(Array(200).keys(), 3, async i => {
    const opened = await open(on, stage, look, tokens[i % MANY_VIEWERS])
    problems.push(opened.problems)
    await opened.page.getByText('live', { exact: true }).waitFor({ timeout: 120_000 })
  })
  await sleep(5000)
  const before = cpuOf(pid)
  await sleep(60_000)
  console.log(
    `CPU of the daemon while nothing changes, ${problems.length} pages open: ${(((cpuOf(pid) - before) / 60) * 100).toFixed(2)} %; its memory ${residentOf(pid).toFixed(0)} MiB; words on the consoles: ${problems.flat().length}`
  )
  await on.close()
  await stage.stop()
}

if (wants('memory')) {
  const nodes = 2000
  const stage = await start(nodes)
  const on = await browser()
  const { page, context } = await open(on, stage, look, stage.token)
  await page.getByText('live', { exact: true }).waitFor()
  const devtools = await context.newCDPSession(page)
  const heap = async () => {
    await devtools.send('HeapProfiler.collectGarbage')
    const { usedSize } = await devtools.send('Runtime.getHeapUsage')
    return usedSize / 1e6
  }
  const names = stage.names(nodes)
  const words = ['downloading', 'unpacking', 'scripts', 'completed']
  // 2,000 nodes that install twice in an hour, four reports each: 16,000 reports in a minute.
  let sent = 0
  const began = performance.now()
  console.log(
    `memory at the start: daemon ${residentOf(pidOf(stage)).toFixed(0)} MiB, page ${(await heap()).toFixed(1)} MB`
  )
  for (let quarter = 1; quarter <= 4; quarter++) {
    const until = began + quarter * 15_000
    while (performance.now() < until && sent < quarter * 4000) {
      await Promise.all(
        Array.from({ length: 40 }, () => {
          const i = sent++
          return stage.report(names[i % nodes] ?? '', `installer.${words[Math.floor(i / nodes) % 4]}`)
        })
      )
      const due = began + (sent / 16_000) * 60_000
      if (due > performance.now()) await sleep(due - performance.now())
    }
    console.log(
      `after ${Math.round((performance.now() - began) / 1000)} s and ${sent} reports: daemon ${residentOf(pidOf(stage)).toFixed(0)} MiB, page ${(await heap()).toFixed(1)} MB`
    )
  }
  await on.close()
  await stage.stop()
}
