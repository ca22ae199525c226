import t from 'tap'
import { grantText, parseGrant } from '../../lib/auth/grant.js'

// rules 5.2
t.test('a grant is read from its text, and printed as one', async t => {
  t.strictSame(parseGrant('admin'), { role: 'admin' })
  t.strictSame(parseGrant('operator'), { role: 'operator' })
  t.strictSame(parseGrant('viewer:gpu,compute,gpu'), { role: 'viewer', groups: ['compute', 'gpu'] })
  for (const text of ['admin', 'operator', 'viewer', 'operator:a', 'viewer:compute,gpu'])
    t.equal(grantText(parseGrant(text)), text)
})

t.test('a text that is no grant is refused with what to type', async t => {
  const wrong: [string, RegExp][] = [
    ...['', ':', 'root', 'Admin', 'viewer ', '__proto__', 'constructor', 'toString:a', 'x'.repeat(1e6)].map(
      (text): [string, RegExp] => [text, /^must be admin, operator or viewer, .*\(operator:compute,gpu\)$/]
    ),
    ['admin:compute', /^must not limit admin to groups: .* type operator:GROUP$/],
    ['admin:', /^must not limit admin to groups/],
    ['viewer:', /^names the group "", and a group's name is 1 to 63 letters/],
    ['viewer:a,,b', /^names the group ""/],
    ['viewer:a, b', /^names the group " b"/],
    ['viewer:a:b', /^names the group "a:b"/],
    ['viewer:__proto__', /^names the group "__proto__"/],
    ['viewer:é', /^names the group "é"/],
    ['viewer:a\n', /^names the group "a\\n"/],
    [`viewer:${'x'.repeat(1e6)}`, /^names the group "x{80}"/],
    [`viewer:${Array.from({ length: 33 }, (_, i) => `g${i}`)}`, /^names 33 groups; 32 are the most/]
  ]
  for (const [text, says] of wrong) t.throws(() => parseGrant(text), { message: says }, text.slice(0, 40))
})
