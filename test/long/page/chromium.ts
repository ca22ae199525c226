import { requirePrograms } from '../../support/programs.js'

requirePrograms('chromium')

/** Debian's Chromium. */
export const program = '/usr/bin/chromium'
