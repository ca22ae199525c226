import { type DataOf, integer, maps, text, textMap, texts, type Variables } from '../../base/variables.js'

const entry = {
  title: 'console',
  meaning: 'The serial console of a node, by its BMC.',
  variables: {
    name: text('the node'),
    group: text("its group, '' without one"),
    setup: text('its BMC set-up'),
    address: text('address of its BMC'),
    port: integer('UDP port of IPMI'),
    username: text('user of the BMC'),
    password: text('his password, as hexadecimal digits'),
    cipher: integer('cipher suite of IPMI'),
    privilege: text<'admin' | 'op' | 'user'>('`admin`, `op` or `user`')
  }
} as const

const data = {
  variables: textMap("the cluster's `variables`"),
  port: integer('TCP port of conmand'),
  log_directory: text('directory of the logs'),
  consoles: maps(entry, 'the consoles; none on a controller that follows another one'),
  notes: texts('for comments: what conmand cannot be told, a sentence for each')
} as const

/** The variables of the template of conmand: their types in code, their text in docs/templates.md. */
export const consoleTemplates = { 'consoles/templ_conman.cfg': data } as const satisfies Record<
  string,
  Variables
>

export type ConsolesData = DataOf<typeof data>
export type ConsoleEntry = ConsolesData['consoles'][number]
