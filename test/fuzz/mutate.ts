import type { Random } from './random.js'

/** What parsers of http, paths, JSON and shells trip over, one byte a character. */
const tokens: readonly string[] = [
  '\r\n',
  '\n',
  '\r',
  '\r\n\r\n',
  '\0',
  ' ',
  '\t',
  ':',
  ',',
  ';',
  '%',
  '%00',
  '%2f',
  '%2e%2e%2f',
  '%u0041',
  '%ff',
  '../',
  '//',
  '?',
  '#',
  '{',
  '}',
  '[[[[[[[[',
  '"',
  '\\',
  '\\u0000',
  '\\ud800',
  '\xff\xfe',
  '\xc3\x28',
  '\xed\xa0\x80',
  '\xef\xbb\xbf',
  '1e999',
  '-1',
  '18446744073709551616',
  '0x10',
  'null',
  '__proto__',
  'constructor',
  'HTTP/1.0',
  'HTTP/2.0',
  'CONNECT ',
  'OPTIONS * ',
  'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  'Host: a\r\n',
  'Content-Length: 5\r\n',
  'Content-Length: 0\r\nContent-Length: 9\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'Expect: 100-continue\r\n',
  'Upgrade: h2c\r\nConnection: Upgrade\r\n',
  'Connection: close\r\n',
  'Connection: keep-alive, x-access-tokens\r\n',
  'X-Forwarded-For: 127.0.0.1\r\n',
  'Range: bytes=0-0,-1,5-\r\n',
  'Range: bytes=99999999999999999999-\r\n',
  'If-Range: "x"\r\n',
  'Prefer: respond-async\r\n',
  '0\r\n\r\n',
  'ffffffffffffffff\r\n',
  '5;x=y\r\nhello\r\n0\r\nTrailer: x\r\n\r\n'
]

/** A text of bytes, changed in one to six places; `others` are what a piece may be taken from. */
export function mutated(random: Random, text: string, others: readonly string[]): string {
  let changed = text
  for (let left = 1 + random.below(6); left > 0; left--) changed = once(random, changed, others)
  return changed
}

function once(random: Random, text: string, others: readonly string[]): string {
  const at = random.below(text.length + 1)
  const [before, behind] = [text.slice(0, at), text.slice(at)]
  switch (random.below(8)) {
    case 0:
      return before + String.fromCharCode(random.below(256)) + behind.slice(1)
    case 1:
      return before + behind.slice(1 + random.below(8))
    case 2:
    case 3:
    case 4:
      return before + random.pick(tokens) + behind.slice(random.is(0.5) ? 0 : random.below(12))
    case 5: {
      const piece = behind.slice(0, 1 + random.below(40))
      return before + piece.repeat(1 + random.below(random.is(0.05) ? 500 : 4)) + behind
    }
    case 6: {
      const other = random.pick(others)
      const from = random.below(other.length + 1)
      return before + other.slice(from, from + random.below(80)) + behind
    }
    default:
      return random.is(0.3) ? before : before + behind.split('').reverse().join('').slice(0, 20) + behind
  }
}
