import { Router } from 'express'
import * as z from 'zod'
import { methodNotAllowed } from '../../http/error-response.ts'
import { IsoTime, isoTime } from '../iso-time.ts'

/** What a check came to; `skipped` where something before it failed, or only the agent can know. */
export const FindingView = z.strictObject({
  check: z
    .string()
    .describe('stable name for programs: settings, dns, tunnel cam.site.example.com'),
  outcome: z.enum(['good', 'bad', 'skipped']),
  detail: z.string().describe('result in one line'),
  remedy: z.string().nullable().describe('fix in one sentence'),
})
export type FindingView = z.infer<typeof FindingView>

export const ExaminationView = z.strictObject({
  examined_at: IsoTime,
  failures: z.int().describe('number of failed checks; start with the first'),
  findings: z.array(FindingView).readonly(),
})

/** Looks at each link of the chain in its order. */
export type Examine = () => Promise<readonly FindingView[]>

/** `/doctor`: what the command of that name says, looked at by the agent itself, now. */
export function doctorRoutes(examine: Examine, now: () => number): Router {
  let running: Promise<readonly FindingView[]> | undefined
  const router = Router()
  router
    .route('/doctor')
    .get(async (_request, response) => {
      // Who asks meanwhile gets the same answer: each look dials all that the agent depends on.
      running ??= examine().finally(() => {
        running = undefined
      })
      const findings = await running
      const failures = findings.filter(({ outcome }) => outcome === 'bad').length
      const view: z.infer<typeof ExaminationView> = {
        examined_at: isoTime(now()),
        failures,
        findings,
      }
      response.json(view)
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}
