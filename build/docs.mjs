// Writes docs/api.md and docs/templates.md from their -intro.md and from the tables in the code. Puts the
// tables into docs/troubleshooting.md and docs/access.md.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { accessDocument, apiDocument } from '../dist/api/documents.js'
import { routes } from '../dist/api/routes.js'
import { errorsDocument } from '../dist/base/error-codes.js'
import { variablesDocument } from '../dist/base/variables.js'
import { fileVariables } from '../dist/boot/node-files.js'
import { bootTemplates } from '../dist/boot/template-variables.js'
import { loadConfig } from '../dist/config/load.js'
import { troubleshootingDocument } from '../dist/monitor/why.js'
import { consoleTemplates } from '../dist/services/consoles/variables.js'
import { dhcpTemplates } from '../dist/services/dhcp/variables.js'
import { dnsTemplates } from '../dist/services/dns/variables.js'
import { tftpTemplates } from '../dist/services/tftp/variables.js'

const root = fileURLToPath(new URL('..', import.meta.url))
const read = name => readFileSync(join(root, 'docs', name), 'utf8')
const write = (name, text) => writeFileSync(join(root, 'docs', name), text)

// Handlers are never called, so the parts of the daemon can be missing.
const table = routes({ config: loadConfig(join(root, 'etc/svcd.ini'), []) })
write('errors.md', errorsDocument())
write('access.md', accessDocument(table, read('access.md')))
write('api.md', apiDocument(table, read('api-intro.md')))
const templates = {
  ...bootTemplates,
  '/config/file/{filename}': fileVariables,
  ...dhcpTemplates,
  ...dnsTemplates,
  ...tftpTemplates,
  ...consoleTemplates
}
write('templates.md', variablesDocument(read('templates-intro.md'), templates))
write('troubleshooting.md', troubleshootingDocument(read('troubleshooting.md')))
