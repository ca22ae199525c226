// Takes pictures of the status page: node test/compile.mjs && node .cache/js/test/long/page/pictures.js
// DIRECTORY [NODES …]
import { mkdirSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { browser, looks, open, Stage } from './stage.js'

const [directory = 'pictures', ...sizes] = process.argv.slice(2)
mkdirSync(directory, { recursive: true })
for (const nodes of (sizes.length > 0 ? sizes : ['3', '2000', '10000']).map(Number)) {
  const stage = await Stage.start(mkdtempSync(join(tmpdir(), 'page-')), nodes)
  const on = await browser()
  try {
    for (const look of looks) {
      const views =
        nodes === 3 ? ['', 'node/node003', 'jobs', 'images', 'networks', 'services', 'audit'] : ['']
      for (const view of views) {
        const { page, context, problems } = await open(on, stage, look, stage.token, `/#/${view}`)
        await page.waitForTimeout(1200)
        await page.screenshot({
          path: join(directory, `${nodes}-${view.replace('/', '-') || 'cluster'}-${look.name}.png`)
        })
        if (problems.length > 0) console.log(look.name, view, problems)
        await context.close()
      }
      const { page, context, problems } = await open(on, stage, look, undefined)
      await page.waitForTimeout(500)
      if (nodes === 3) await page.screenshot({ path: join(directory, `stranger-${look.name}.png`) })
      if (problems.length > 0) console.log(look.name, 'stranger', problems)
      await context.close()
    }
  } finally {
    await on.close()
    await stage.stop()
  }
}
