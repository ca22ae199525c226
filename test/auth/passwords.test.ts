import t from 'tap'
import {
  dummyHash,
  hashPassword,
  isPasswordHash,
  longestPassword,
  verifyPassword
} from '../../lib/auth/passwords.js'

// rules 5.1
t.test('a hash is salted, on one word, and verified by its password alone', async t => {
  const [first, second] = await Promise.all([hashPassword('Zoë; "#'), hashPassword('Zoë; "#')])
  t.match(first, /^\$scrypt\$N=\d+,r=\d+,p=\d+\$[\w-]{22}\$[\w-]{43}$/)
  t.not(first, second)
  t.ok(isPasswordHash(first))
  t.equal(await verifyPassword('Zoë; "#', first), true)
  for (const wrong of ['', 'zoë; "#', 'Zoë; "# ', 'Zoe\u0308; "#', 'Zoë; "#\0'])
    t.equal(await verifyPassword(wrong, first), false, JSON.stringify(wrong))
})

t.test('what is no hash matches nothing, and costs nothing', async t => {
  const salt = 'A'.repeat(22)
  const key = 'A'.repeat(43)
  const bad = [
    '',
    'plain',
    `$scrypt$N=16384,r=8,p=5$${salt}$`,
    `$scrypt$N=16384,r=8,p=5$$${key}`,
    `$scrypt$N=16383,r=8,p=5$${salt}$${key}`,
    `$scrypt$N=1,r=8,p=5$${salt}$${key}`,
    `$scrypt$N=1048576,r=99,p=1$${salt}$${key}`,
    `$scrypt$N=9999999999,r=8,p=5$${salt}$${key}`,
    `$scrypt$N=16384,r=0,p=5$${salt}$${key}`,
    `$scrypt$N=16384,r=8,p=5$${salt}$${key}\n`,
    ` $scrypt$N=16384,r=8,p=5$${salt}$${key}`
  ]
  for (const hash of bad) {
    t.equal(isPasswordHash(hash), false, hash)
    t.equal(await verifyPassword('', hash), false, hash)
  }
})

t.test('an empty password can be verified, one that is too long cannot match', async t => {
  t.equal(await verifyPassword('', await hashPassword('')), true)
  const long = 'x'.repeat(longestPassword + 1)
  t.equal(await verifyPassword(long, await hashPassword(long)), false)
})

t.test('the dummy costs what the dearest hash costs, and matches nothing', async t => {
  const cheap = `$scrypt$N=2,r=1,p=1$${'A'.repeat(22)}$${'A'.repeat(43)}`
  const dear = `$scrypt$N=4,r=1,p=1$${'A'.repeat(22)}$${'A'.repeat(43)}`
  t.match(dummyHash([cheap, dear, cheap]), /^\$scrypt\$N=4,r=1,p=1\$/)
  t.ok(isPasswordHash(dummyHash([])))
  t.equal(dummyHash([]).split('$')[2], (await hashPassword('x')).split('$')[2])
  t.equal(await verifyPassword('', dummyHash([cheap])), false)
})
