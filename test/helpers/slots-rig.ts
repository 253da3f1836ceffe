import { encodeProxyHeader } from '../../src/gateway/agents/control-message.ts'
import type {
  NoStreamReason,
  Pace,
  ProxyStream,
  StreamClient,
  StreamWaiter,
} from '../../src/gateway/streams/proxy-stream.ts'
import type { ServiceConnections } from '../../src/gateway/streams/service-connections.ts'
import { StreamPool } from '../../src/gateway/streams/stream-pool.ts'
import {
  type DeviceLink,
  StreamSlots,
  type StreamSlotsLimits,
} from '../../src/gateway/streams/stream-slots.ts'
import { Session } from '../../src/muxado/session.ts'
import type { SessionLimits } from '../../src/muxado/session-stream.ts'
import { DEAF, type Stream } from '../../src/muxado/stream.ts'
import { pipePair } from './connected-pair.ts'
import { ManualClock } from './manual-clock.ts'

/** A client that does not take what is there for it, and one whose exchange is too young to say. */
export const SLOW: Pace = { rate: 0, isHeldUp: true }
export const YOUNG: Pace = { rate: undefined, isHeldUp: false }

/** An exchange that asks for a stream; it gives the stream up when it has to, or when it closes. */
export class Asker implements StreamWaiter {
  readonly pool: StreamPool
  readonly network: string
  readonly pace: Pace
  stream: ProxyStream | undefined
  refused: NoStreamReason | undefined
  isClosed = false
  isEvicted = false

  constructor(pool: StreamPool, network: string, pace: Pace = YOUNG) {
    this.pool = pool
    this.network = network
    this.pace = pace
  }

  ask(): this {
    this.pool.acquire(clientFrom(this.network), this)
    return this
  }

  askFresh(): this {
    this.pool.acquireFresh(clientFrom(this.network), this)
    return this
  }

  onStream(stream: ProxyStream): void {
    this.stream = stream
    const onClose = () => {
      this.isClosed = true
      stream.retire()
    }
    stream.stream.handler = { ...DEAF, onClose }
  }

  onNoStream(reason: NoStreamReason): void {
    this.refused = reason
  }

  evict(): void {
    this.isEvicted = true
    this.stream?.retire()
  }
}

export interface SlotsRigOptions {
  readonly session?: Partial<SessionLimits>
  readonly limits?: Partial<StreamSlotsLimits>
  readonly link?: DeviceLink
  /** The device never reads. */
  readonly isStuck?: boolean
}

/** A session and its device, in memory; the device lets go of streams at once unless `isDeaf`. */
export async function startSlots({ session: its, limits, link, isStuck }: SlotsRigOptions = {}) {
  const pair = await pipePair()
  /** Those that were told to end, and do not. */
  const deaf: Stream[] = []
  const device = { isDeaf: false, deaf, streams: [] as Stream[] }
  if (!isStuck) {
    new Session(pair.client, {
      role: 'client',
      accept(stream) {
        device.streams.push(stream)
        const onEnd = () => (device.isDeaf ? deaf.push(stream) : stream.end())
        stream.handler = { ...DEAF, onData: (chunk) => stream.release(chunk.length), onEnd }
      },
    })
  }
  const session = new Session(pair.server, {
    role: 'server',
    accept: (stream) => stream.retire(),
    ...(its ? { limits: its } : {}),
  })
  const clock = new ManualClock()
  const own = { reserved: 0, ...limits }
  const slots = new StreamSlots({ session, clock, limits: own, ...(link && { link }) })
  const createPool = (id: string, service?: ServiceConnections) =>
    new StreamPool({
      slots,
      service,
      proxyHeader: (clientAddr) => encodeProxyHeader({ id, protocol: 'https' }, clientAddr),
    })
  return { device, session, clock, slots, createPool }
}

/** Leaves so many idle streams with an endpoint. */
export function leaveIdle(pool: StreamPool, count: number): void {
  for (let at = 0; at < count; at += 1) {
    new Asker(pool, `192.0.2.${at}`).askFresh().stream?.release()
  }
}

/** A client of a network, whose name is its address. */
export function clientFrom(network: string): StreamClient {
  const facts = { clientIp: network, clientPort: 1, serverIp: '192.0.2.1', serverPort: 443 }
  return { address: `${network}:1`, network, facts }
}

/** Takes turns with clients until none of them gets one more stream of an endpoint. */
export function takeAll(pool: StreamPool, networks: string[], pace?: Pace): Asker[] {
  const askers: Asker[] = []
  for (let before = -1; before !== askers.length; ) {
    before = askers.length
    for (const network of networks) {
      const asker = new Asker(pool, network, pace).ask()
      if (asker.stream) askers.push(asker)
      else pool.cancel(asker)
    }
  }
  return askers
}
