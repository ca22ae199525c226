import t from 'tap'
import type { ServiceError } from '../../lib/base/errors.js'
import { parseRange } from '../../lib/http/files.js'

const ETAG = '"1-2-3"'

// rules 4.9
t.test('the part of a file that is asked for', async t => {
  const whole = undefined
  const table: [range: string | undefined, size: number, part: [start: number, end: number] | undefined][] = [
    [undefined, 100, whole],
    ['bytes=0-0', 100, [0, 0]],
    ['bytes=0-99', 100, [0, 99]],
    ['bytes=10-19', 100, [10, 19]],
    ['bytes=10-', 100, [10, 99]],
    ['bytes=99-', 100, [99, 99]],
    ['bytes=90-1000', 100, [90, 99]],
    ['bytes=-1', 100, [99, 99]],
    ['bytes=-100', 100, [0, 99]],
    ['bytes=-1000', 100, [0, 99]],
    ['bytes=0-99999999999999999999999', 100, [0, 99]],
    ['Bytes= 1-2 ', 100, [1, 2]],
    ['bytes=4294967296-4294967299', 5_000_000_000, [4294967296, 4294967299]],
    // Several ranges, other units and what is malformed: the whole file.
    ['bytes=0-1,3-4', 100, whole],
    ['bytes=0-1, 3-4', 100, whole],
    ['lines=0-1', 100, whole],
    ['bytes=5-4', 100, whole],
    ['bytes=-', 100, whole],
    ['bytes=', 100, whole],
    ['bytes', 100, whole],
    ['bytes=a-b', 100, whole],
    ['bytes=1-2x', 100, whole],
    ['bytes=--1', 100, whole],
    ['bytes=1.5-2', 100, whole],
    ['', 100, whole]
  ]
  for (const [range, size, part] of table) {
    const expected = part && { start: part[0], end: part[1] }
    t.same(parseRange(range, undefined, ETAG, size), expected, String(range))
  }
})

t.test('a range outside the file is refused with its size', async t => {
  for (const [range, size] of [
    ['bytes=100-', 100],
    ['bytes=100-200', 100],
    ['bytes=99999999999999999999999-', 100],
    ['bytes=-0', 100],
    ['bytes=0-', 0],
    ['bytes=-5', 0]
  ] as const) {
    try {
      t.fail(`${range}: ${JSON.stringify(parseRange(range, undefined, ETAG, size))}`)
    } catch (error) {
      t.equal((error as ServiceError).status, 416, range)
      t.same((error as ServiceError).headers, { 'Content-Range': `bytes */${size}` })
    }
  }
})

t.test('If-Range gives the part only for the very same file', async t => {
  const part = { start: 1, end: 2 }
  t.same(parseRange('bytes=1-2', ETAG, ETAG, 100), part)
  for (const other of ['"x"', `W/${ETAG}`, '1-2-3', '', 'Wed, 21 Oct 2015 07:28:00 GMT']) {
    t.equal(parseRange('bytes=1-2', other, ETAG, 100), undefined, other)
    t.equal(parseRange('bytes=900-', other, ETAG, 100), undefined, `${other}, and no 416 either`)
  }
})
