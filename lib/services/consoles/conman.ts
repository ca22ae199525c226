import type { Backend } from '../backend.js'
import type { ConsolesData } from './variables.js'

/** conmand has one file, read at its start, and no checker: the check is that the program is there. */
export const conman: Backend<ConsolesData> = {
  name: 'conman',
  defaults: { check: ['conmand', '-V'], service: 'svcd-consoles' },
  reload: 'restart',
  render: (data, { config }, render) => ({
    // The file has the passwords of BMCs.
    files: [{ path: config, text: render('consoles/templ_conman.cfg', data), mode: 0o600, needs: 'restart' }]
  }),
  masked: text => text.replace(/\b0x[0-9a-f]{2,}/gi, '0x…'),
  // Its values are checked before they are rendered (data.ts).
  checks: ({ check }) => ({ commands: [check] })
}
