import { testStandby } from '../../store/standby-suite.js'

testStandby({ kills: 30 })
