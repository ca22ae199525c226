import type { ControllerQuestions } from '../auth/controller-questions.js'
import type { Audit } from '../monitor/audit.js'
import { AUDIT_LINES, answerWithLines } from '../monitor/audit-logs.js'
import { type ApiRoute, ok } from './context.js'
import { get } from './row.js'
import { object, string } from './schema.js'

/**
 * The lines of this controller's audit logs, for the one that writes (rules 6.11). The routes are loaded only where there may be other
 * controllers, and stand in no document: who asks has to prove to be a controller.
 */
export function auditLineRoutes(audit: Pick<Audit, 'last'>, questions: ControllerQuestions): ApiRoute[] {
  return (['users', 'machines'] as const).map(by =>
    get(`${AUDIT_LINES}/${by}`, {
      access: 'anyone',
      refuses: [401],
      summary: `The last lines of the audit log of ${by} of this controller, for another one`,
      output: object({ lines: string(), proof: string() }),
      handler: async ({ target, headers }) => {
        questions.check(target, headers)
        return ok(await answerWithLines(audit, by, text => questions.proofOf(headers, text)))
      }
    })
  )
}
