import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import { withDeadline } from '../base/deadline.ts'
import { createDeferred, type Deferred } from '../base/deferred.ts'

/**
 * The responses that clients wait for, by their connection.
 *
 * INVARIANT: no response stays for longer than its connection. That of a pipelined request gets the
 * socket when those in front of it are over, and never says 'close' when the connection ends before.
 */
export class DueResponses implements Iterable<ServerResponse> {
  readonly #due = new Map<Socket, Set<ServerResponse>>()
  #size = 0
  #none: Deferred<void> | undefined

  get size(): number {
    return this.#size
  }

  *[Symbol.iterator](): IterableIterator<ServerResponse> {
    for (const responses of this.#due.values()) yield* responses
  }

  /** Counts it until it, or its connection, is closed. */
  add(response: ServerResponse): void {
    const { socket } = response.req
    // It would not say so again.
    if (socket.closed) return
    const responses = this.#due.get(socket) ?? this.#open(socket)
    responses.add(response)
    this.#size += 1
    response.once('close', () => {
      if (responses.delete(response)) this.#forget(1)
    })
  }

  /** Resolves when there is none. */
  async ended(): Promise<void> {
    if (this.#size === 0) return
    this.#none ??= createDeferred()
    await this.#none.promise
  }

  /** Ends the connections on which one is due, the client hears no more of any. */
  cutOff(): void {
    for (const [socket, responses] of this.#due) if (responses.size > 0) socket.destroy()
  }

  /** One listener for all that come on it: a kept connection brings many. */
  #open(socket: Socket): Set<ServerResponse> {
    const responses = new Set<ServerResponse>()
    this.#due.set(socket, responses)
    socket.once('close', () => {
      this.#due.delete(socket)
      const { size } = responses
      responses.clear()
      this.#forget(size)
    })
    return responses
  }

  #forget(count: number): void {
    this.#size -= count
    if (this.#size > 0) return
    this.#none?.resolve()
    this.#none = undefined
  }
}

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
