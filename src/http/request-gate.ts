import { once } from 'node:events'
import type { RequestHandler, Response } from 'express'
import { AppError } from '../base/app-error.ts'
import { withDeadline } from '../base/deadline.ts'

const UNDER_WAY_MS = 5_000
const RETRY_AFTER_S = 1

/** Lets requests in, or refuses them with 503 while another process takes over what they change. */
export class RequestGate {
  readonly #under = new Set<Response>()
  #isClosed = false

  readonly handler: RequestHandler = (_request, response, next) => {
    if (this.#isClosed) {
      // The next one comes to the other process.
      response.setHeader('connection', 'close')
      const detail = 'Another process takes over: try again in a second.'
      next(new AppError('storage-unavailable', detail, { retryAfterS: RETRY_AFTER_S }))
      return
    }
    this.#under.add(response)
    response.once('close', () => this.#under.delete(response))
    next()
  }

  /**
   * Resolves when no request is under way. What takes longer is broken off: its change is not
   * acknowledged, and nobody's slow request holds up a reload.
   */
  async close(withinMs: number = UNDER_WAY_MS): Promise<void> {
    this.#isClosed = true
    const ended = Promise.all([...this.#under].map((response) => once(response, 'close')))
    try {
      await withDeadline(ended, withinMs, 'ending the requests under way')
    } catch {
      for (const response of this.#under) response.destroy()
      await ended
    }
  }

  open(): void {
    this.#isClosed = false
  }
}
