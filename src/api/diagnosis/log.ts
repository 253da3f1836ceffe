import * as z from 'zod'
import type { LogTail } from '../../base/logger.ts'
import { parse } from '../../http/parse.ts'
import type { Route } from '../../http/routes.ts'

const MAX_LIMIT = 1_000
const DEFAULT_LIMIT = 100
const LIMIT = `must be a whole number from 1 to ${MAX_LIMIT}`
const AFTER = 'must be the number of a line, or 0'

/** Query of `GET /log`. */
export const LogQuery = z.strictObject({
  after: z.coerce
    .number(AFTER)
    .int(AFTER)
    .min(0, AFTER)
    .optional()
    .describe('return only lines after this number'),
  limit: z.coerce.number(LIMIT).int(LIMIT).min(1, LIMIT).max(MAX_LIMIT, LIMIT).optional(),
})

export const LogView = z.strictObject({
  lines: z
    .array(
      z.strictObject({
        number: z.int().describe('consecutive number since the start of the process'),
        line: z.looseObject({ level: z.string(), time: z.string(), msg: z.string() }),
      }),
    )
    .describe('oldest first; only the latest lines if the limit is exceeded'),
  last: z.int().describe('number of the latest line; starts again after a restart'),
})

/** `/log`: the end of the log, as far as the process keeps it in memory. */
export function logRoute(tail: LogTail): Route {
  return {
    route: 'GET /log',
    id: 'getLog',
    summary: 'Get the latest log lines',
    about: 'Log of the agent.',
    query: LogQuery,
    answers: { 200: { means: 'Lines, oldest first.', schema: { Log: LogView } } },
    handle: (request, response) => {
      const { after = 0, limit = DEFAULT_LIMIT } = parse(LogQuery, request.query)
      const view: z.infer<typeof LogView> = { lines: tail.after(after, limit), last: tail.last }
      response.json(view)
    },
  }
}
