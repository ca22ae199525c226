/** Data that the generated and most of the handwritten templates are rendered with. */
export const DATA = {
  name: 'node001',
  text: 'it\'s "quoted" $HOME `x` \\ & <b>',
  unicode: 'Zoë 😀 straße',
  lines: 'first\n  second\n\nlast\n',
  padded: '  \t spaces \n ',
  mixed: 'one two-Three (four) [FIVE',
  empty: '',
  digits: '42',
  zero: 0,
  one: 1,
  seven: 7,
  negative: -13,
  half: 0.5,
  third: 0.1,
  big: 123456789,
  yes: true,
  no: false,
  nothing: null,
  numbers: [3, 1, 2],
  words: ['beta', 'Alpha', 'gamma', 'alpha'],
  noitems: [],
  nested: [[1, 2], [3], []],
  pairs: [
    ['a', 1],
    ['b', 2]
  ],
  map: { b: 2, a: 1, c: null },
  bare: {},
  interfaces: [
    { interface: 'BOOTIF', ipaddress: '10.141.0.1', network: 'cluster', mtu: 1500, provision: true },
    { interface: 'eth1', ipaddress: '', network: 'storage', mtu: 9000, provision: false, vlan: 7 },
    { interface: 'BMC', ipaddress: '10.148.0.1', network: 'ipmi', mtu: 1500, provision: false }
  ],
  deep: { node: { items: 'shadowed', name: 'inner', tags: ['x', 'y'], constructor: 'own' } }
}
