import { FIN, type FrameSink, SYN } from './frame.ts'

/** A sink that says each frame in one line, such as `sent DATA 3 SYN 12 bytes`, and passes it on. */
export function traced(
  sink: FrameSink,
  direction: 'sent' | 'received',
  trace: (line: string) => void,
): FrameSink {
  return {
    data(streamId, body, flags) {
      const names = (flags & SYN ? ' SYN' : '') + (flags & FIN ? ' FIN' : '')
      trace(`${direction} DATA ${streamId}${names} ${body.length} bytes`)
      sink.data(streamId, body, flags)
    },
    reset(streamId, code) {
      trace(`${direction} RST ${streamId} code ${code}`)
      sink.reset(streamId, code)
    },
    windowIncrement(streamId, bytes) {
      trace(`${direction} WNDINC ${streamId} ${bytes} bytes`)
      sink.windowIncrement(streamId, bytes)
    },
    goAway(lastStreamId, code, message) {
      trace(
        `${direction} GOAWAY last stream ${lastStreamId} code ${code} ${JSON.stringify(message)}`,
      )
      sink.goAway(lastStreamId, code, message)
    },
  }
}
