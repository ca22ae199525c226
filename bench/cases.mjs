// All cases, in the order of the table. A case has a name, a title, `sized` if it is run for each number of
// nodes that is asked for, and `run({ nodes, rounds, ms })`, which gives its figures (harness.mjs).
import addresses from './cases/addresses.mjs'
import etcd from './cases/etcd.mjs'
import files from './cases/files.mjs'
import large from './cases/large.mjs'
import packs from './cases/packs.mjs'
import requests from './cases/requests.mjs'
import services from './cases/services.mjs'
import start from './cases/start.mjs'
import storm from './cases/storm.mjs'
import trust from './cases/trust.mjs'
import writes from './cases/writes.mjs'

export const cases = [
  requests,
  files,
  writes,
  addresses,
  storm,
  large,
  start,
  packs,
  services,
  etcd,
  trust
].flat()
