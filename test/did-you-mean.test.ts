import t from 'tap'
import { didYouMean } from '../lib/did-you-mean.js'

// rules 1.13
t.test('the nearest name is told, and none that is far', async t => {
  const known = ['name', 'group', 'netboot', 'macaddr', 'osimage', 'osimagetag', 'comment', 'ip', 'BOOTIF']
  const table: [given: string, meant: string | undefined][] = [
    ['netbot', 'netboot'],
    ['netboto', 'netboot'],
    ['Group', 'group'],
    ['gruop', 'group'],
    ['nam', 'name'],
    ['mac', 'macaddr'],
    ['osimages', 'osimage'],
    ['bootf', 'BOOTIF'],
    ['coment', 'comment'],
    ['switch', undefined],
    ['xy', undefined],
    ['', undefined],
    ['netboot'.repeat(20), undefined],
    ['a"\u0001', undefined]
  ]
  for (const [given, meant] of table)
    t.equal(
      didYouMean(given, known),
      meant === undefined ? '' : ` (did you mean "${meant}"?)`,
      JSON.stringify(given)
    )
})
