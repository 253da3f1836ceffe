import type { Http2Stream } from 'node:http2'

/**
 * Calls back when a stream has closed and the library is done with it. Node says `close` from within
 * nghttp2, which has the stream still: whoever resets another stream of the session there, or ends
 * the session, makes it write empty DATA frames of the closed one until there is no memory left.
 */
export function whenClosed(stream: Http2Stream, done: () => void): void {
  stream.once('close', () => setImmediate(done))
}
