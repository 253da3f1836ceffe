import { randomInt } from 'node:crypto'
import type { ListenAddress, PortRange } from '../../src/base/listen-address.ts'

/** Below the ports that systems give away by themselves. */
const FIRST = 20_000
/** Workers beside each other have ports of their own, and other runs hardly ever the same. */
const WORKERS = 20
const SHARE = 600

let taken = randomInt(SHARE)

/**
 * Ports that nobody else gets: a port that was free a moment ago, or that its owner gives up for a
 * moment, may be another's by then.
 */
export function somePorts(count = 20): PortRange {
  if ((taken % SHARE) + count > SHARE) taken += SHARE - (taken % SHARE)
  const worker = (process.ppid + Number(process.env.VITEST_POOL_ID ?? 0)) % WORKERS
  const first = FIRST + worker * SHARE + (taken % SHARE)
  taken += count
  return { host: '127.0.0.1', first, last: first + count - 1 }
}

/** Where a server may listen that is started again there. */
export function lastingAddress(): ListenAddress {
  const { host, first } = somePorts(1)
  return { host, port: first }
}
