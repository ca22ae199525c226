import type { ControllerQuestions } from '../auth/controller-questions.js'
import { ERRANDS, errandIn } from '../image/errands/errand.js'
import type { Errands } from '../image/errands/errands.js'
import type { ApiRequest, ApiRoute } from './context.js'
import { post } from './row.js'
import { plainText } from './schema.js'

/** An errand has names, a path and a URL. */
const MOST_BYTES = 8192

/**
 * Work that is done here at once: `[jobs] parallel` has 100 at most, and what was begun for another controller that wrote before may
 * still be ending.
 */
const MOST_WORK = 256
/** The same of checks: a client waits for each, and work has places of its own beside them. */
const MOST_CHECKS = 64

/**
 * Work on directories that are here, for the controller that writes (rules 9.15). The route is loaded only where there may be other
 * controllers, and stands in no document: who asks has to prove to be that controller.
 */
export function errandRoutes(errands: Errands, questions: ControllerQuestions): ApiRoute[] {
  return [
    post(ERRANDS, {
      access: 'anyone',
      refuses: [401],
      summary: 'Work on the directory of an image, for the controller that writes',
      // It is read before anybody has proved anything.
      maxBody: MOST_BYTES,
      body: {
        schema: { type: 'object' },
        read: ({ body, headers }: ApiRequest) => {
          questions.check(JSON.stringify(body), headers)
          return errandIn(body)
        }
      },
      output: plainText,
      handler: ({ headers }, errand) => ({
        status: 200,
        type: 'application/x-ndjson',
        headers: { 'Cache-Control': 'no-store', 'X-Accel-Buffering': 'no' },
        feed: errands.feed(errand, said => questions.proofOf(headers, said)),
        // Those who watch events do not keep it waiting. No user has such a name.
        follower: errand.task.check
          ? { name: 'checks for the controller that writes', first: true, most: MOST_CHECKS }
          : { name: 'pieces of work for the controller that writes', first: true, most: MOST_WORK }
      })
    })
  ]
}
