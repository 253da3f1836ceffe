import type { RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import { withDeadline } from '../base/deadline.ts'
import { DueResponses } from './due-responses.ts'

const UNDER_WAY_MS = 5_000
/** For connections that are broken off to have ended: it takes no client for that. */
const CUT_OFF_MS = 2_000
const RETRY_AFTER_S = 1

/** Lets requests in, or refuses them with 503 while another process takes over what they change. */
export class RequestGate {
  readonly #under = new DueResponses()
  #isClosed = false

  readonly handler: RequestHandler = (_request, response, next) => {
    if (this.#isClosed) {
      // The next one comes to the other process.
      response.setHeader('connection', 'close')
      const detail = 'Another process is taking over. Try again in a second.'
      next(new AppError('storage-unavailable', detail, { retryAfterS: RETRY_AFTER_S }))
      return
    }
    this.#under.add(response)
    next()
  }

  /**
   * Resolves when no request is under way. What takes longer is broken off: its change is not
   * acknowledged, and nobody's slow request holds up a reload. When it throws, the gate is open.
   */
  async close(withinMs: number = UNDER_WAY_MS): Promise<void> {
    this.#isClosed = true
    const ended = this.#under.ended()
    try {
      await withDeadline(ended, withinMs, 'finishing open requests')
    } catch {
      await this.#cutOff(ended)
    }
  }

  open(): void {
    this.#isClosed = false
  }

  async #cutOff(ended: Promise<void>): Promise<void> {
    this.#under.cutOff()
    try {
      await withDeadline(ended, CUT_OFF_MS, 'closing open requests')
    } catch (error) {
      this.open()
      throw error
    }
  }
}
