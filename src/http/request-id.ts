import { randomUUID } from 'node:crypto'
import type { RequestHandler, Response } from 'express'

const HEADER = 'x-request-id'
/** A caller's own id is kept when it cannot forge a log line. */
const ACCEPTED = /^[\w-]{8,64}$/

/** Gives each request an id that the answer, its errors and the log carry. */
export const requestId: RequestHandler = (request, response, next) => {
  const given = request.get(HEADER)
  response.setHeader(HEADER, given && ACCEPTED.test(given) ? given : randomUUID())
  next()
}

/** The id of the request that `response` answers. */
export function requestIdOf(response: Response): string {
  return String(response.getHeader(HEADER))
}
