import { readFileSync } from 'node:fs'
import t from 'tap'
import { troubleshootingDocument, verdictRules } from '../../lib/monitor/why.js'

const text = readFileSync(new URL('../../docs/troubleshooting.md', import.meta.url), 'utf8')

t.test('docs/troubleshooting.md has the tables of the code: make docs', async t => {
  t.equal(text, troubleshootingDocument(text))
})

t.test('a remedy is in words of svcctl, not of the interface', async t => {
  for (const { id, remedy } of verdictRules) t.notMatch(remedy, /\bpost\b|": /, id)
})

t.test('each rule has its section, and each section its rule', async t => {
  const sections = [...text.matchAll(/^### (\S+)$/gm)].map(([, id]) => id)
  t.same(
    sections,
    verdictRules.map(({ id }) => id)
  )
})
