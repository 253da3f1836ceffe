import type { Duplex } from 'node:stream'
import { SharedReads } from '../../src/base/net/shared-reads.ts'

const WIPED = 0xee

/** Overwrites lent bytes as soon as their time is over, so that bytes kept by mistake show. */
class WipingReads extends SharedReads {
  override begin(socket: Duplex, onBytes: (bytes: Buffer) => void): boolean {
    let isLent = false
    isLent = super.begin(socket, (bytes) => {
      onBytes(bytes)
      if (isLent) bytes.fill(WIPED)
    })
    return isLent
  }
}

export function wipingReads(): SharedReads {
  return new WipingReads()
}
