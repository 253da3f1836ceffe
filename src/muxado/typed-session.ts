import type { Session } from './session.ts'
import { DEAF, type Stream, type StreamHandler } from './stream.ts'

const TYPE_BYTES = 4
const EMPTY = Buffer.alloc(0)

/**
 * Opens a stream whose first 4 bytes are its type. They ride in the SYN frame, `first` behind them.
 * Throws like `Session.open`.
 */
export function openTyped(
  session: Session,
  type: number,
  handler: StreamHandler,
  first: Buffer = EMPTY,
): Stream {
  const head = Buffer.allocUnsafe(TYPE_BYTES + first.length)
  first.copy(head, head.writeUInt32BE(type))
  return session.open(handler, head)
}

/** An `accept` for a session: reads the type, then hands on the stream, whose handler is to be set. */
export function acceptTyped(
  accept: (type: number, stream: Stream) => void,
): (stream: Stream) => void {
  return (stream) => {
    const head = Buffer.alloc(TYPE_BYTES)
    let filled = 0
    stream.handler = {
      ...DEAF,
      onData(chunk) {
        const taken = chunk.copy(head, filled)
        filled += taken
        stream.release(taken)
        if (filled < TYPE_BYTES) return
        stream.handler = DEAF
        accept(head.readUInt32BE(), stream)
        if (taken < chunk.length) stream.handler.onData(chunk.subarray(taken))
      },
      onEnd: () => stream.retire(),
    }
  }
}
