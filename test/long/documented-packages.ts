import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { checkout } from '../support/programs.js'

const read = (page: string) => readFileSync(join(checkout, page), 'utf8')

const nodeSide = 'docs/node-side.md'

/**
 * Debian's packages of rows of the table "What an image needs" (docs/node-side.md), in its order, without
 * those that it names as another choice. Images of tests are made of these, so that the page lacks nothing
 * that a node needs.
 * @throws Error when there is no such row.
 */
export function documented(...rows: readonly string[]): string[] {
  const table = read(nodeSide).split('## What an image needs')[1] ?? ''
  return rows.flatMap(row => {
    const cell = table
      .split('\n')
      .find(line => line.replaceAll('`', '').startsWith(`| ${row} |`))
      ?.split('|')[2]
      ?.replace(/\([^)]*\)| or `[^`]*`/g, '')
    if (!cell) throw new Error(`${nodeSide} has no row ${row}`)
    return [...cell.matchAll(/`([a-z0-9.+-]+)`/g)].map(([, name = '']) => name)
  })
}

/** The packages of the one command of a page that begins so. */
function typed(page: string, begin: RegExp): string[] {
  const [, words] = read(page).match(new RegExp(`${begin.source} ([^\`\\n]*)`)) ?? []
  if (!words) throw new Error(`${page} has no ${begin.source}`)
  return words.split(' ').filter(word => !word.startsWith('-'))
}

/** What an image gets afterwards, to use dracut in place of initramfs-tools. */
export const dracutAfterwards = (): string[] =>
  typed(nodeSide, /chroot \S+ apt-get install --no-install-recommends/)
