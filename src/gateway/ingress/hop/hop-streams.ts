import type { StreamHandler } from '../../../muxado/stream.ts'
import { openTyped } from '../../../muxado/typed-session.ts'
import type { PeerLink } from '../../peers/peer-link.ts'
import { HopReset, VISITOR_STREAM_TYPE } from '../../peers/peer-protocol.ts'
import {
  ProxyStream,
  type ProxyStreamOwner,
  type StreamWaiter,
} from '../../streams/proxy-stream.ts'
import { ClientHolding } from '../../streams/shares.ts'

/** Of one visitor's connection, as many wait for its next requests. */
const MAX_IDLE = 4

/**
 * The streams of one visitor's connection to one home: a visitor of HTTP/1.1 has one, of HTTP/2 one
 * for each request at a time. They go with the visitor's connection, or with the link.
 */
export class HopStreams implements ProxyStreamOwner {
  readonly link: PeerLink
  readonly #facts: Buffer
  readonly #holding: ClientHolding
  readonly #idle: ProxyStream[] = []
  #isClosed = false

  /** `facts` stand in front of each stream. */
  constructor(link: PeerLink, facts: Buffer, network: string) {
    this.link = link
    this.#facts = facts
    this.#holding = new ClientHolding(network)
  }

  acquire(_client: unknown, waiter: StreamWaiter): void {
    const idle = this.#idle.pop()
    if (idle) this.#lend(idle, waiter)
    else this.acquireFresh(_client, waiter)
  }

  acquireFresh(_client: unknown, waiter: StreamWaiter): void {
    const { session } = this.link
    if (!session) waiter.onNoStream('session-over')
    else if (session.freeSlots === 0) waiter.onNoStream('saturated')
    else {
      const open = (handler: StreamHandler) =>
        openTyped(session, VISITOR_STREAM_TYPE, handler, this.#facts)
      this.#lend(new HopStream(this, open), waiter)
    }
  }

  /** Whoever asks has an answer at once. */
  cancel(): void {}

  /** The visitor has gone. */
  close(): void {
    this.#isClosed = true
    for (const stream of [...this.#idle]) stream.retire()
  }

  takeBack(stream: ProxyStream): void {
    if (this.#isClosed || this.#idle.length >= MAX_IDLE) {
      stream.retire()
      return
    }
    stream.rest(0)
    this.#idle.push(stream)
  }

  drop(stream: ProxyStream): void {
    const at = this.#idle.indexOf(stream)
    if (at !== -1) this.#idle.splice(at, 1)
  }

  onSwitch(): void {}

  onSlotFree(): void {}

  #lend(stream: ProxyStream, waiter: StreamWaiter): void {
    if (stream.stream.isClosed) {
      waiter.onNoStream('session-over')
      return
    }
    stream.lend(waiter, this.#holding)
    waiter.onStream(stream)
  }
}

/** The other end is no SDK: it is told at once that nobody wants the rest. */
class HopStream extends ProxyStream {
  override retire(): void {
    const { stream } = this
    super.retire()
    if (!stream.isClosed) stream.reset(HopReset.broken)
  }
}
