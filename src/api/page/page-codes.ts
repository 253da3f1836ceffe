import * as z from 'zod'
import { changeOf } from '../../http/change-audit.ts'
import type { Route } from '../../http/routes.ts'
import { IsoTime, isoTime } from '../iso-time.ts'
import type { OneTimeCodes } from './one-time-codes.ts'

/** A code, and where to use it; others in the network come first. */
export const PageCodeView = z.strictObject({
  code: z.string(),
  expires_at: IsoTime,
  urls: z.array(z.string()).readonly(),
})

/** `/page_codes`: a code that opens the page once. Served at the local socket alone. */
export function pageCodeRoute(codes: OneTimeCodes, urls: () => readonly string[]): Route {
  return {
    route: 'POST /page_codes',
    isInternal: true,
    handle: async (_request, response) => {
      const { code, expiresAt } = await changeOf(response).run(() => codes.create())
      const view: z.infer<typeof PageCodeView> = {
        code: code.reveal(),
        expires_at: isoTime(expiresAt),
        urls: urls(),
      }
      response.status(201).json(view)
    },
  }
}
