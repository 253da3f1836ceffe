import { openTyped } from '../../../muxado/session.ts'
import { ProxyStream, type StreamClient, type StreamWaiter } from '../../streams/proxy-stream.ts'
import { StreamPool } from '../../streams/stream-pool.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import { HopReset, VISITOR_STREAM_TYPE } from '../../streams/visitor-facts.ts'

/**
 * The streams of one visitor's connection to one home: a visitor of HTTP/1.1 has one, of HTTP/2 one
 * for each request at a time. They go with the visitor's connection, or with the link; an idle one
 * sooner, when others want its slot.
 */
export class HopStreams extends StreamPool {
  /** `facts` stand in front of each stream. */
  constructor(slots: StreamSlots, facts: Buffer) {
    super({ slots, proxyHeader: () => facts })
  }

  /** The other node closes no stream unasked. */
  override acquireOnce(client: StreamClient, waiter: StreamWaiter): void {
    this.acquire(client, waiter)
  }

  protected override makeStream(facts: Buffer): ProxyStream {
    const { session } = this.slots
    return new HopStream(this, (handler) => openTyped(session, VISITOR_STREAM_TYPE, handler, facts))
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
