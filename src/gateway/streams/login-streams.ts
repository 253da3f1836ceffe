import type { LoginStep, ProxyStream, VisitorLogins } from './proxy-stream.ts'

/** Streams of one visitor's connection; the least recently used is removed first. */
const MAX_STREAMS = 8

interface KeptStream {
  readonly stream: ProxyStream
  /** The service waits for the next step of a login on it. */
  readonly isBegun: boolean
}

/**
 * The unused streams of one visitor's connection that have a completed or started login. NTLM and Negotiate
 * log in a TCP connection, not a request: another visitor on such a stream would act as the first. So the
 * streams stay here until the visitor's connection closes.
 */
export class LoginStreams implements VisitorLogins {
  #kept: KeptStream[] = []
  #isClosed = false

  get isEmpty(): boolean {
    return this.#kept.length === 0
  }

  /** One of the endpoint's for a request; undefined when any stream will do. */
  takeFor(owner: object, step: LoginStep | undefined): ProxyStream | undefined {
    this.#kept = this.#kept.filter(({ stream }) => stream.isAside)
    const isContinued = step?.isContinued === true
    // Several logins may have begun: the service has waited for the first of them for longest.
    const at = this.#kept.findIndex(
      ({ stream, isBegun }) => stream.owner === owner && isBegun === isContinued,
    )
    return at === -1 ? undefined : this.#kept.splice(at, 1)[0]?.stream
  }

  /** The exchange on a stream is over; the service keeps the connection. */
  keep(stream: ProxyStream, isBegun: boolean): void {
    if (this.#isClosed) {
      stream.retire()
      return
    }
    stream.setAside()
    this.#kept = this.#kept.filter((kept) => kept.stream.isAside)
    if (stream.isAside) this.#kept.push({ stream, isBegun })
    if (this.#kept.length > MAX_STREAMS) this.#kept.shift()?.stream.retire()
  }

  /** The visitor's connection has closed. */
  close(): void {
    this.#isClosed = true
    for (const { stream } of this.#kept) stream.retire()
    this.#kept = []
  }
}
