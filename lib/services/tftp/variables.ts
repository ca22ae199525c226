import { type DataOf, flag, text, textMap, texts, type Variables } from '../../base/variables.js'

const own = {
  variables: textMap("the cluster's `variables`"),
  directory: text('the directory of the tree'),
  alone: flag('whether this server does neither DHCP nor DNS for svcd'),
  interfaces: texts('interfaces of the controller to listen on; empty: all')
} as const

/** The variables of the template of a TFTP server: their types in code, their text in docs/templates.md. */
export const tftpTemplates = { 'tftp/templ_dnsmasq.cfg': own } as const satisfies Record<string, Variables>

export type TftpData = Omit<DataOf<typeof own>, 'variables' | 'directory'> & {
  /** The configurations of GRUB, by their names in the tree. */
  readonly files: readonly { readonly name: string; readonly text: string }[]
}
