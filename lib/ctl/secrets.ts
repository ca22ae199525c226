import { isObject, type JsonObject, utf8 } from '../json.js'
import type { TypeName } from '../model/docs.js'
import { base64, hidden } from '../model/field.js'
import { secretEntry } from '../model/secrets.js'
import { changed, reader } from './change.js'
import { change, type Session, type Verb } from './session.js'
import { clean, cleanLines, refused, wrongUsage } from './terminal.js'
import { bodyOf } from './values.js'

const only = ['node', 'group'] as const

/** The fields of a secret, whose content is given as text. */
const described = {
  title: 'secret',
  fields: secretEntry
    .filter(({ name }) => name === 'path' || name === 'content')
    .map(field => (field.name === 'content' ? { ...field, type: base64 } : field)),
  newName: ['newsecretname']
}

const pathOf = (type: TypeName, owner: string, ...secret: string[]) =>
  ['/config/secrets', type, ...[owner, ...secret].map(encodeURIComponent)].join('/')

/** Secrets of nodes and groups: files that the installation places. */
export const secretVerbs: Readonly<Record<string, Verb>> = {
  secrets: {
    operands: 'NAME',
    summary: "the names of its secrets; of a node also its group's",
    options: ['output'],
    only,
    async run(session, type, [owner = '']) {
      const answer = await asked(session, pathOf(type, owner))
      if (session.format === 'json') return session.json(answer)
      const lines = secretsIn(answer).map(({ of, name, path }) => `${of}  ${name}  ${path}`)
      await session.lines(lines.map(clean))
    }
  },
  secret: {
    operands: 'NAME SECRET',
    summary: 'print a secret, for an admin',
    options: ['output'],
    only,
    async run(session, type, [owner = '', wanted = '']) {
      const answer = await asked(session, pathOf(type, owner, wanted))
      if (session.format === 'json') return session.json(answer)
      const [{ content } = { content: hidden }] = secretsIn(answer)
      if (content === hidden) throw refused(`only an admin may read secret ${wanted}`)
      const text = utf8(Buffer.from(content, 'base64'))
      if (text === undefined) throw refused(`secret ${wanted} is no text: -o json shows it in base64`)
      await session.terminal.out(session.terminal.shows.out ? cleanLines(text) : text)
    }
  },
  setsecret: {
    operands: 'NAME SECRET [content=@FILE|-] [path=PATH]',
    count: [3, Number.POSITIVE_INFINITY],
    summary: 'add, change or rename (newsecretname=) a secret',
    options: change,
    only,
    async run(session, type, [owner = '', secret = '', ...words]) {
      const body = await bodyOf(described, words, reader(session))
      await changed(session, pathOf(type, owner, secret), body, `secret ${secret} of ${type} ${owner} stored`)
    }
  },
  rmsecret: {
    operands: 'NAME SECRET',
    summary: 'delete a secret',
    options: change,
    only,
    run: (session, type, [owner = '', secret = '']) =>
      changed(
        session,
        `${pathOf(type, owner, secret)}/_delete`,
        undefined,
        `secret ${secret} of ${type} ${owner} deleted`
      )
  }
}

function asked({ controller, format }: Session, path: string): Promise<JsonObject> {
  if (format === 'csv') throw wrongUsage('there is no CSV of this: -o takes text or json')
  return controller.json('GET', path)
}

/** The secrets of an answer, each with its owner. */
function secretsIn({ config }: JsonObject) {
  const { secrets } = isObject(config) ? config : {}
  return Object.entries(isObject(secrets) ? secrets : {}).flatMap(([type, owners]) =>
    Object.entries(isObject(owners) ? owners : {}).flatMap(([owner, list]) =>
      (Array.isArray(list) ? list.filter(isObject) : []).map(({ name, path, content }) => ({
        of: `${type} ${owner}`,
        ...{ name: String(name), path: String(path ?? '-'), content: String(content) }
      }))
    )
  )
}
