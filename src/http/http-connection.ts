import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionStage, SharedConnection } from '../base/limit/connection-shares.ts'

/** A client's connection to an API, as its listener counts it. */
export class HttpConnection implements SharedConnection {
  readonly #socket: Socket
  /** With the time since which each is due. */
  readonly #due = new Map<ServerResponse, number>()
  #idleSince = performance.now()

  constructor(socket: Socket) {
    this.#socket = socket
  }

  /** Whoever has sent a request as a whole is worked for, until all of the answer is written. */
  get stage(): ConnectionStage {
    if (this.#due.size === 0) return 'idle'
    const isBusy = [...this.#due.keys()].some(
      ({ req, writableEnded }) => req.complete && !writableEnded,
    )
    return isBusy ? 'busy' : 'awaited'
  }

  get idleSince(): number {
    return this.#idleSince
  }

  /** Counts a request as under way until its response is closed. */
  track(response: ServerResponse): void {
    this.#due.set(response, performance.now())
    response.once('close', () => {
      this.#due.delete(response)
      this.#idleSince = performance.now()
    })
  }

  /** It waits for an answer that has not begun, for no longer than `ms`. */
  isPatient(ms: number): boolean {
    const since = performance.now() - ms
    return [...this.#due].some(
      ([{ req, headersSent }, at]) => req.complete && !headersSent && at > since,
    )
  }

  yieldPlace(): void {
    this.#socket.destroy()
  }
}
