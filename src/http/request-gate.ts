import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import { withDeadline } from '../base/deadline.ts'
import { createDeferred, type Deferred } from '../base/deferred.ts'

/**
 * Pending responses, by connection.
 *
 * INVARIANT: no response outlives its connection. A pipelined request's response gets the socket only when
 * the earlier ones have ended. If the connection ends before that, it never emits 'close'.
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

  /** Counts the response until it or its connection is closed. */
  add(response: ServerResponse): void {
    const { socket } = response.req
    // The socket would not emit 'close' again.
    if (socket.closed) return
    const responses = this.#due.get(socket) ?? this.#open(socket)
    responses.add(response)
    this.#size += 1
    response.once('close', () => {
      if (responses.delete(response)) this.#forget(1)
    })
  }

  /** Resolves when no response is pending. */
  async ended(): Promise<void> {
    if (this.#size === 0) return
    this.#none ??= createDeferred()
    await this.#none.promise
  }

  /** Closes the connections with pending responses. */
  cutOff(): void {
    for (const [socket, responses] of this.#due) if (responses.size > 0) socket.destroy()
  }

  /** Adds one listener per connection, because a keep-alive connection carries many responses. */
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

/** Default time for requests in progress to end. */
const UNDER_WAY_MS = 5_000
/** Time limit for closed connections to end. It does not depend on clients. */
const CUT_OFF_MS = 2_000
const RETRY_AFTER_S = 1

/** Admits requests, or refuses them with 503 while another process takes over the data they change. */
export class RequestGate {
  readonly #under = new DueResponses()
  #isClosed = false

  readonly handler: RequestHandler = (_request, response, next) => {
    if (this.#isClosed) {
      // The client's next request reaches the other process.
      response.setHeader('connection', 'close')
      const detail = 'Another process is taking over. Try again in a second.'
      next(new AppError('storage-unavailable', detail, { retryAfterS: RETRY_AFTER_S }))
      return
    }
    this.#under.add(response)
    next()
  }

  /**
   * Closes the gate. Resolves when no request is pending. After `withinMs`, cuts off the rest: their changes
   * are not acknowledged, and a slow request cannot block a reload. If it throws, the gate is open.
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
