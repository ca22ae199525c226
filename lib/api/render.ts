import { type ApiRoute, type Parts, param, plain } from './context.js'
import { shapes } from './shapes.js'

/** What a node would be given, without side effects and with secrets masked (rules 4.12). */
export function renderRoutes({ model, boot, install }: Parts): ApiRoute[] {
  const preview = (what: string, text: (node: string) => string): ApiRoute => ({
    method: 'GET',
    path: `/config/node/{node}/_render/${what}`,
    effect: 'reads',
    access: 'admin',
    body: 'ignored',
    codes: [200, 401, 403, 404, 503],
    summary: `The ${what} script that the node would get, secrets masked`,
    output: shapes.text,
    handler: request => plain(text(model.get('node', param(request, 'node')).name))
  })
  return [
    preview('boot', node => boot.preview(node)),
    preview('install', node => install.preview(node)),
    preview('kickstart', node => install.kickstart(node, undefined))
  ]
}
