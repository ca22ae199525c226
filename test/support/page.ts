import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { checkout } from './programs.js'

/** A fenced block of a page. */
export interface Block {
  /** The word behind the fence; '' where there is none. */
  readonly language: string
  readonly text: string
  /** The heading above it, without its signs; '' above the first one. */
  readonly heading: string
  /** Line of the fence, from 1. */
  readonly line: number
}

/** The fenced blocks of a page, in its order; a block in a list has its indentation taken off. */
export function blocksOf(page: string): Block[] {
  const blocks: Block[] = []
  let heading = ''
  let open: { language: string; indent: string; line: number; lines: string[] } | undefined
  for (const [i, line] of readFileSync(join(checkout, page), 'utf8').split('\n').entries()) {
    const [, indent = '', language = ''] = /^( *)```(\w*)$/.exec(line) ?? []
    if (!/^ *```/.test(line)) {
      if (open) open.lines.push(line.startsWith(open.indent) ? line.slice(open.indent.length) : line)
      else heading = /^#+ (.*)$/.exec(line)?.[1] ?? heading
    } else if (open) {
      const { lines, ...block } = open
      blocks.push({ language: block.language, text: `${lines.join('\n')}\n`, heading, line: block.line })
      open = undefined
    } else open = { language, indent, line: i + 1, lines: [] }
  }
  return blocks
}

/**
 * What a reader types below a heading of a page: its blocks of shell, one behind the other, without those
 * that hold a text.
 */
export const typedBelow = (page: string, heading: string, but = /^$/): string =>
  blocksOf(page)
    .filter(block => block.language === 'sh' && block.heading === heading && !but.test(block.text))
    .map(block => block.text)
    .join('')
