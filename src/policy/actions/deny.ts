import * as z from 'zod'
import { CLOSE, respond } from '../exchange/outcome.ts'
import { defineAction } from './action.ts'

/** Refuses: a request with an empty answer, a connection by closing it. */
export const deny = defineAction({
  type: 'deny',
  phases: ['on_tcp_connect', 'on_http_request'],
  config: z.strictObject({ status_code: z.int().min(400).max(599).default(403) }),
  example: { status_code: 403 },
  isTerminating: true,
  build({ status_code: status }, { phase }) {
    const outcome = phase === 'on_tcp_connect' ? CLOSE : respond({ status, headers: [], body: '' })
    return () => outcome
  },
})
