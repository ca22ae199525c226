import { badRequest, notFound } from '../base/errors.js'
import { isObject } from '../base/json.js'
import { readFields } from '../model/request.js'
import type { Tx } from '../model/stored.js'
import { type DnsRecordDoc, MOST_RECORDS, recordFields } from '../model/types/network.js'
import { warningsOf } from '../model/warnings.js'
import { type ApiRoute, actorOf, config, done, ok, type Parts, param } from './context.js'
import { withWarnings } from './objects.js'
import { type Body, deletion, get, openEnvelope, post } from './row.js'
import { at, list, object, property } from './schema.js'

const base = '/config/dns/{network}'
const place = 'config.dns.{network}'
const fields = Object.fromEntries(recordFields.map(field => [field.name, property(field)]))
const schema = at(place, list(object(fields, ['host'])))

/** A record, or a list of them, each host once. */
const body: Body<readonly Partial<DnsRecordDoc>[]> = {
  schema,
  read: request => {
    const given = openEnvelope(request, place)
    const about = `network ${param(request, 'network')}: DNS record`
    const all = Array.isArray(given) ? given : [given]
    if (all.length === 0 || all.length > MOST_RECORDS)
      throw badRequest(`${about}: ${all.length} are given: give 1 to ${MOST_RECORDS}`, 'too-many')
    const seen = new Set<string>()
    return all.map(entry => {
      if (!isObject(entry))
        throw badRequest(`${about}: the body must be a list of objects with "host"`, 'invalid-body')
      const record: Partial<DnsRecordDoc> = Object.fromEntries(readFields(about, recordFields, entry))
      if (record.host && seen.has(record.host))
        throw badRequest(`${about} ${record.host} is given twice`, 'given-twice')
      seen.add(record.host ?? '')
      return record
    })
  }
}

/** Records that an admin adds to the zones of networks (rules 10.15). */
export function dnsRoutes({ model }: Parts): ApiRoute[] {
  const put = (tx: Tx, name: string, records: readonly DnsRecordDoc[]) => {
    const { dns_records: _, ...rest } = model.get('network', name, tx)
    tx.put('network', name, records.length > 0 ? { ...rest, dns_records: records } : rest)
  }
  return [
    get(base, 'user', {
      summary: 'The additional DNS records of a network',
      output: schema,
      handler: request => {
        const { name, dns_records = [] } = model.get('network', param(request, 'network'))
        return ok(config('dns', { [name]: dns_records }))
      }
    }),
    post(base, 'user', {
      answers: [201, 204],
      summary: 'Add or change DNS records of a network',
      body,
      handler: async (request, given) => {
        const name = param(request, 'network')
        const added = await model.change(actorOf(request), tx => {
          const had = model.get('network', name, tx).dns_records ?? []
          const records = new Map(had.map(record => [record.host, record]))
          // A record with an address replaces one with an alias, and vice versa.
          for (const { host = '', ipaddress, alias } of given)
            records.set(host, { host, ...(ipaddress ? { ipaddress } : {}), ...(alias ? { alias } : {}) })
          put(tx, name, [...records.values()])
          return records.size > had.length
        })
        const loose = warningsOf(model.view, 'network', name, model.cluster)
        const warnings = loose.filter(one =>
          given.some(({ host }) => one.startsWith(`its DNS record ${host} `))
        )
        return withWarnings(done(added ? 201 : 204, `DNS records of network ${name} created`), warnings)
      }
    }),
    ...deletion(`${base}/{host}`, 'user', {
      summary: 'Delete a DNS record of a network',
      handler: async request => {
        const [name, host] = [param(request, 'network'), param(request, 'host')]
        await model.change(actorOf(request), tx => {
          const had = model.get('network', name, tx).dns_records ?? []
          const left = had.filter(record => record.host !== host)
          if (left.length === had.length)
            throw notFound(`network ${name} has no DNS record ${host}`, 'no-object')
          put(tx, name, left)
        })
        return { status: 204 }
      }
    })
  ]
}
