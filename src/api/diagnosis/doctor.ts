import * as z from 'zod'
import type { Route } from '../../http/routes.ts'
import { IsoTime, isoTime } from '../iso-time.ts'

/** Result of a check. `skipped`: an earlier check failed, or only the agent can run it. */
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

/** `/doctor`: runs the checks of the `doctor` command inside the agent. */
export function doctorRoute(examine: Examine, now: () => number): Route {
  let running: Promise<readonly FindingView[]> | undefined
  return {
    route: 'GET /doctor',
    id: 'examine',
    summary: 'Check settings, network, service and tunnels, and suggest fixes',
    about: 'Checks with suggested fixes.',
    answers: { 200: { means: 'Results in order.', schema: { Examination: ExaminationView } } },
    handle: async (_request, response) => {
      // Callers during a run share its result: each run dials everything that the agent depends on.
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
    },
  }
}
