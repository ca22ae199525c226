import { type DataOf, flag, maps, text, textMap, texts } from '../variables.js'
import { installInterface, installVariables, nodeVariables } from './install-data.js'

const { node, hostname, domain, group, comment, vendor, assettag, url } = installVariables

/** The variables of a file's template (rules 4.25). None is ever undefined; '' means that a value is not set. */
export const fileVariables = {
  ...{ node, hostname, domain, group, comment, vendor, assettag, url },
  osimage: text("name of the OS image, '' without one"),
  osimagetag: installVariables.osimagetag,
  distribution: text("distribution of the image, such as redhat or debian; '' without an image"),
  provision_interface: installVariables.provision_interface,
  interfaces: maps(installInterface, 'the interfaces of the node'),
  roles: texts('names of roles'),
  ntp_server: installVariables.ntp_server,
  variables: nodeVariables,
  secret: textMap("the group's secrets and the node's own, by name; one that is not UTF-8 text is left out"),
  name: text('name of the file'),
  path: text('where it stands on the node'),
  masked: flag('true when the caller is not the node itself: secrets are `********`')
} as const

/** What the template of a file sees. */
export type FileData = DataOf<typeof fileVariables>
