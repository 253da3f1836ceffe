import type { Clock } from '../../src/base/clock.ts'
import type { LogLevel } from '../../src/base/logger.ts'
import { encodeProxyHeader } from '../../src/gateway/agents/control-message.ts'
import { type AgentEndpoint, EndpointTraffic } from '../../src/gateway/endpoints/endpoint.ts'
import {
  EndpointRegistry,
  type EndpointRegistryOptions,
} from '../../src/gateway/endpoints/endpoint-registry.ts'
import type { Routes } from '../../src/gateway/endpoints/routes.ts'
import { AskSeal } from '../../src/gateway/ingress/common/ask-seal.ts'
import { WriteCoalescer } from '../../src/gateway/ingress/common/client-socket.ts'
import { ErrorLog } from '../../src/gateway/ingress/common/error-log.ts'
import { NO_PAGES } from '../../src/gateway/ingress/common/error-reply.ts'
import {
  INGRESS_LIMITS,
  type IngressLimits,
} from '../../src/gateway/ingress/common/ingress-context.ts'
import { PieceShares } from '../../src/gateway/ingress/syntax/piece-shares.ts'
import { ClientConnection } from '../../src/gateway/ingress/visitor/connection.ts'
import { BufferAccount } from '../../src/gateway/streams/buffer-account.ts'
import { StreamPool } from '../../src/gateway/streams/stream-pool.ts'
import { StreamSlots } from '../../src/gateway/streams/stream-slots.ts'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { acceptTyped, Session } from '../../src/muxado/session.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import type { CompiledPolicy } from '../../src/policy/policy.ts'
import { captureLog } from './captured-log.ts'
import { pipePair } from './connected-pair.ts'
import { ManualClock } from './manual-clock.ts'
import { MemorySocket } from './memory-socket.ts'
import { wipingReads } from './wiping-reads.ts'

export interface MemorySiteOptions {
  /** Plays the device, header and all. */
  readonly serve: (stream: Stream) => void
  readonly policy?: Partial<CompiledPolicy>
  readonly limits?: Partial<IngressLimits>
  readonly openStreams?: number
  readonly bufferBytes?: number
  readonly logLevel?: LogLevel
  readonly registry?: EndpointRegistryOptions
  /** What else there is, at other gateways; without it this is the only one. */
  readonly routes?: (registry: EndpointRegistry, clock: Clock) => Routes
}

const ENDPOINT = 'a.test'
/** One without a policy. */
const PLAIN_ENDPOINT = 'b.test'

export type MemorySite = Awaited<ReturnType<typeof startMemorySite>>

/** Connections of an ingress, a session and a device without any socket of the system. */
export async function startMemorySite(options: MemorySiteOptions) {
  const clock = new ManualClock()
  const captured = captureLog(options.logLevel ?? 'warn')
  const pair = await pipePair()
  const { openStreams } = options
  const session = new Session(pair.server, {
    role: 'server',
    accept: (stream) => stream.retire(),
    reads: wipingReads(),
    ...(openStreams === undefined ? {} : { limits: { openStreams } }),
  })
  const device = new Session(pair.client, {
    role: 'client',
    accept: acceptTyped((_type, stream) => options.serve(stream)),
  })
  const buffers = new BufferAccount(options.bufferBytes)
  const slots = new StreamSlots({ session, clock, buffers })
  const endpoint = createEndpoint(ENDPOINT, slots, options.policy ?? {})
  const plain = createEndpoint(PLAIN_ENDPOINT, slots, {})
  const registry = new EndpointRegistry({ clock, ...options.registry })
  registry.add(endpoint)
  registry.add(plain)
  /** Brings one more endpoint online, on the same session. */
  const bind = (host: string, policy: Partial<CompiledPolicy> = {}) => {
    const more = createEndpoint(host, slots, policy)
    registry.add(more)
    return more
  }
  const context = {
    registry,
    routes: options.routes?.(registry, clock) ?? registry,
    ownRoutes: registry,
    clock,
    log: captured.log,
    limits: { ...INGRESS_LIMITS, ...options.limits },
    buffers,
    coalescer: new WriteCoalescer(),
    reads: wipingReads(),
    askSeal: new AskSeal(clock),
    http2Streams: { open: 0 },
    pieceShares: new PieceShares(clock),
    errorPages: NO_PAGES,
    errorLog: new ErrorLog(captured.log, clock),
    now: clock.monotonic(),
  }
  const connections = new Set<ClientConnection>()
  const visit = (address?: string) => {
    const socket = new MemorySocket(address)
    const connection = new ClientConnection({
      socket,
      listener: { scheme: 'http', redirectsToHttps: false },
      context,
      onClose: (closed) => connections.delete(closed),
    })
    connections.add(connection)
    connection.open()
    return socket
  }
  /** Moves the time, and looks at the deadlines as the ingress does. */
  const advance = async (ms: number) => {
    for (let left = ms; left > 0; left -= context.limits.sweepMs) {
      await clock.advance(Math.min(left, context.limits.sweepMs))
      context.now = clock.monotonic()
      for (const connection of connections) connection.sweep(context.now)
    }
  }
  const close = async () => {
    slots.close()
    await session.goAway(ErrorCode.none, 'the site is closed')
  }
  return {
    close,
    clock,
    captured,
    session,
    device,
    slots,
    buffers,
    endpoint,
    plain,
    registry,
    bind,
    connections,
    visit,
    advance,
  }
}

function createEndpoint(
  host: string,
  slots: StreamSlots,
  policy: Partial<CompiledPolicy>,
): AgentEndpoint {
  const id = `ep_${host}`
  return {
    type: 'agent',
    ownerId: null,
    id,
    url: `http://${host}:80`,
    host,
    protocol: 'http',
    forwardsTo: 'localhost:1',
    trafficPolicy: null,
    policy: policy as CompiledPolicy,
    metadata: '',
    streams: new StreamPool({
      slots,
      proxyHeader: (clientAddr) => encodeProxyHeader({ id, protocol: 'http' }, clientAddr),
    }),
    sessionId: 'ts_memory',
    openedAt: 0,
    traffic: new EndpointTraffic(),
  }
}
