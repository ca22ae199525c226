import { createConfig, lintFromString } from '@redocly/openapi-core'
import t from 'tap'
import { openapi } from '../../lib/api/openapi.js'
import { table } from '../support/routes.js'

/** Rules of the linter that are not for this interface, and why. */
const notOurs: Readonly<Record<string, string>> = {
  'path-segment-plural': 'the contract has its paths',
  'paths-kebab-case': 'the contract has its paths',
  'no-http-verbs-in-paths': 'the contract has its paths',
  'response-mime-type': 'scripts, tables and files are no JSON',
  'request-mime-type': 'a table is CSV',
  'operation-4xx-problem-details-rfc7807': 'the contract has its form of a refusal',
  'required-string-property-missing-min-length': 'a text may be empty',
  'scalar-property-missing-example': 'descriptions say what a field takes'
}

interface Problem {
  readonly ruleId: string
  readonly message: string
  readonly location: readonly { readonly pointer?: string | undefined }[]
}

async function problemsOf(document: object): Promise<Problem[]> {
  const config = await createConfig({ extends: ['all'] })
  const source = JSON.stringify(document)
  return lintFromString({ source, config, absoluteRef: '/openapi.json' })
}

// rules 2.12
t.test('/openapi.json keeps every rule of Redocly, all as errors, but for those of the contract', async t => {
  const document = openapi(table)
  const found = await problemsOf(document)
  // It refuses every request (rules 2.1).
  const refusing = '#/paths/~1config~1osimage/post/responses'
  const ours = found.filter(
    ({ ruleId, location }) => !Object.hasOwn(notOurs, ruleId) && location[0]?.pointer !== refusing
  )
  t.same(
    ours.map(({ ruleId, message, location }) => `${ruleId}: ${location[0]?.pointer}: ${message}`),
    []
  )
  const broken = new Set(found.map(({ ruleId }) => ruleId))
  t.same(
    Object.keys(notOurs).filter(rule => !broken.has(rule)),
    [],
    'each exception is needed'
  )
  const worse = JSON.parse(JSON.stringify(document))
  delete worse.paths['/version'].get.operationId
  t.ok(
    (await problemsOf(worse)).some(({ ruleId }) => ruleId === 'operation-operationId'),
    'the linter would tell'
  )
})
