// The tests of every day do not install etcd: where it is not there, these are those of `make test-long`
// alone.
import t from 'tap'
import { locate } from '../support/programs.js'
import { testStandby } from './standby-suite.js'

if (locate('etcd')) testStandby({ kills: 2 })
else t.pass('etcd is not installed')
