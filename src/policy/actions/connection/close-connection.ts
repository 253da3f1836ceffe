import * as z from 'zod'
import { CLOSE } from '../../exchange/outcome.ts'
import { defineAction } from '../action.ts'

/** Drops the connection without an answer. */
export const closeConnection = defineAction({
  type: 'close-connection',
  phases: ['on_tcp_connect', 'on_http_request'],
  config: z.strictObject({}),
  example: {},
  isTerminating: true,
  build: () => () => CLOSE,
})
