import type { Duplex } from 'node:stream'
import { SharedReads } from '../../src/base/net/shared-reads.ts'

const WIPED = 0xee

/**
 * Overwrites lent bytes as soon as their time is over, so that bytes kept by mistake show. What is no socket
 * of the system lends copies, which are overwritten too.
 */
class WipingReads extends SharedReads {
  override begin(socket: Duplex, onBytes: (bytes: Buffer) => void): boolean {
    let isShared = false
    isShared = super.begin(socket, (bytes) => {
      const lent = isShared ? bytes : Buffer.from(bytes)
      onBytes(lent)
      lent.fill(WIPED)
    })
    return true
  }
}

export function wipingReads(): SharedReads {
  return new WipingReads()
}
