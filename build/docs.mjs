// Writes docs/api.md: the prose of docs/api-intro.md, and the tables from the routes and fields of the code.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { apiDocument } from '../dist/api/documents.js'
import { routes } from '../dist/api/routes.js'
import { loadConfig } from '../dist/config/load.js'

const root = fileURLToPath(new URL('..', import.meta.url))
// The table is only looked at: no handler is called, so the daemon's parts need not exist.
const table = routes({ config: loadConfig(join(root, 'etc/svcd.ini'), []) })
const intro = readFileSync(join(root, 'docs/api-intro.md'), 'utf8')
writeFileSync(join(root, 'docs/api.md'), apiDocument(table, intro))
