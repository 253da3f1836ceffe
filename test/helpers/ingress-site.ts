import { onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import type { LogLevel } from '../../src/base/logger.ts'
import { type ProxyConfig, TrustedProxies } from '../../src/base/net/trusted-proxies.ts'
import { encodeProxyHeader } from '../../src/gateway/agents/control-message.ts'
import { served } from '../../src/gateway/certificates/certificate-file.ts'
import {
  type AgentEndpoint,
  type AppProtocol,
  EndpointTraffic,
} from '../../src/gateway/endpoints/endpoint.ts'
import {
  EndpointRegistry,
  type EndpointRegistryOptions,
} from '../../src/gateway/endpoints/endpoint-registry.ts'
import type { IngressLimits } from '../../src/gateway/ingress/common/ingress-context.ts'
import { Ingress, type IngressAddresses } from '../../src/gateway/ingress/ingress.ts'
import type { BufferAccount } from '../../src/gateway/streams/buffer-account.ts'
import { StreamPool } from '../../src/gateway/streams/stream-pool.ts'
import { StreamSlots, type StreamSlotsLimits } from '../../src/gateway/streams/stream-slots.ts'
import { Session } from '../../src/muxado/session.ts'
import type { SessionLimits } from '../../src/muxado/session-stream.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import type { CompiledPolicy } from '../../src/policy/policy.ts'
import { type CapturedLog, captureLog } from './captured-log.ts'
import { tcpPair } from './connected-pair.ts'
import { putNodeBefore } from './hop-site.ts'
import { SdkStandIn } from './sdk-stand-in.ts'
import { createTlsFixture, type TlsFixture } from './tls-fixture.ts'
import { wipingReads } from './wiping-reads.ts'

export interface IngressSiteOptions {
  /** Port of the device's service. */
  readonly service: number
  /** Plays the device instead of the service, on a bare stream. */
  readonly serve?: (stream: Stream) => void
  readonly clock?: Clock
  readonly limits?: Partial<IngressLimits>
  readonly slotLimits?: Partial<StreamSlotsLimits>
  /** What waits for visitors and devices, of the whole gateway. */
  readonly buffers?: BufferAccount
  readonly sessionLimits?: Partial<SessionLimits>
  /** Where the plain front listens; another address than loopback redirects. */
  readonly httpHost?: string
  readonly logLevel?: LogLevel
  readonly policy?: Partial<CompiledPolicy>
  readonly registry?: EndpointRegistryOptions
  /** Trusted proxies in front, which name clients by `X-Forwarded-For`, or by the PROXY protocol. */
  readonly proxies?: Pick<ProxyConfig, 'networks' | 'sendProxyProtocol'>
  /** Of `https://a.test`, as what follows. */
  readonly answerMs?: number
  readonly appProtocol?: AppProtocol
}

/** An ingress, one agent session whose other end plays the SDK, and endpoints on it. */
export interface IngressSite {
  readonly ingress: Ingress
  /** Where visitors come in: the same, unless another node is in front of it. */
  readonly front: Ingress
  readonly addresses: IngressAddresses
  readonly registry: EndpointRegistry
  /** One more agent session, whose service is the same. */
  reconnect(): Promise<StreamSlots>
  readonly session: Session
  readonly slots: StreamSlots
  readonly sdk: SdkStandIn
  readonly captured: CapturedLog
  readonly caPem: string
  /** Serves another certificate from now on. */
  useCertificate(fixture: TlsFixture): void
  /** The server names that were asked a certificate for. */
  readonly serverNames: readonly (string | undefined)[]
  /** `https://a.test`, which is there from the start. */
  readonly endpoint: AgentEndpoint
  /** Brings one more endpoint online, on the same session. */
  bind(
    host: string,
    protocol?: 'http' | 'https',
    policy?: Partial<CompiledPolicy>,
    on?: StreamSlots,
  ): AgentEndpoint
}

/** Whether visitors of the sites of these tests come in at another node than their endpoints are at. */
export const isBehindNode = () => process.env.INGRESS_BEHIND_NODE === 'true'

/** Everything stops with the running test. */
export async function startIngressSite(options: IngressSiteOptions): Promise<IngressSite> {
  const { clock = systemClock, limits, httpHost = '127.0.0.1', logLevel } = options
  const captured = captureLog(logLevel)
  const { caPem, ...pair } = await createTlsFixture()
  let certificate = served(pair)
  const serverNames: (string | undefined)[] = []
  const registry = new EndpointRegistry({ clock, ...options.registry })
  const tlsOf = {
    served(name: string | undefined) {
      serverNames.push(name)
      return certificate
    },
  }
  const { proxies } = options
  const inFront = proxies && {
    proxies: new TrustedProxies({
      ...proxies,
      header: 'x-forwarded-for',
      log: captured.log,
      clock,
    }),
    hasProxyProtocol: proxies.sendProxyProtocol,
  }
  const ingress = new Ingress({
    registry,
    http: { host: httpHost, port: 0 },
    https: { host: '127.0.0.1', port: 0 },
    tls: tlsOf,
    log: captured.log,
    ...(options.buffers ? { buffers: options.buffers } : {}),
    reads: wipingReads(),
    clock,
    ...(limits ? { limits } : {}),
    ...inFront,
  })
  onTestFinished(() => ingress.stop(0))
  const own = await ingress.start()
  // What tests of one node say has to hold where another one is in front of it.
  const first = isBehindNode()
    ? await putNodeBefore(
        { ingress, registry },
        { httpHost, limits, tls: tlsOf, log: captureLog().log, clock, ...inFront },
      )
    : undefined
  const addresses = first?.addresses ?? own
  const connectSlots = async () => {
    const { session, sdk } = await connectStandIn(options)
    const slots = new StreamSlots({
      session,
      clock,
      ...(options.slotLimits ? { limits: options.slotLimits } : {}),
      ...(options.buffers ? { buffers: options.buffers } : {}),
    })
    // As the agent session does it.
    void session.closed.then(() => slots.close())
    onTestFinished(() => slots.close())
    return { session, sdk, slots }
  }
  const { session, sdk, slots } = await connectSlots()
  const reconnect = async () => (await connectSlots()).slots
  const bind: IngressSite['bind'] = (host, protocol = 'https', policy = {}, on = slots) => {
    const url = `${protocol}://${host}:${addresses[protocol].port}`
    const endpoint = createEndpoint({ host, protocol, url, slots: on, policy })
    registry.add(endpoint)
    return endpoint
  }
  const endpoint = Object.assign(bind('a.test', 'https', options.policy), {
    answerMs: options.answerMs,
    appProtocol: options.appProtocol,
  })
  const useCertificate = (fixture: TlsFixture) => {
    certificate = served(fixture)
  }
  const tls = { caPem, useCertificate, serverNames }
  return {
    ingress,
    front: first?.ingress ?? ingress,
    addresses,
    registry,
    reconnect,
    session,
    slots,
    sdk,
    captured,
    ...tls,
    endpoint,
    bind,
  }
}

async function connectStandIn({ service, serve, sessionLimits }: IngressSiteOptions) {
  const pair = await tcpPair()
  const session = new Session(pair.server, {
    role: 'server',
    accept: (stream) => stream.retire(),
    reads: wipingReads(),
    ...(sessionLimits ? { limits: sessionLimits } : {}),
  })
  return { session, sdk: new SdkStandIn(pair.client, service, serve) }
}

interface EndpointParts extends Pick<AgentEndpoint, 'host' | 'protocol' | 'url'> {
  readonly slots: StreamSlots
  /** What is given here runs; the rest is a policy without rules. */
  readonly policy: Partial<CompiledPolicy>
}

function createEndpoint({ host, protocol, url, slots, policy }: EndpointParts): AgentEndpoint {
  const id = `ep_${host}`
  return {
    type: 'agent',
    ownerId: null,
    id,
    url,
    host,
    protocol,
    forwardsTo: 'localhost:1',
    trafficPolicy: null,
    policy: policy as CompiledPolicy,
    metadata: '',
    streams: new StreamPool({
      slots,
      proxyHeader: (clientAddr) => encodeProxyHeader({ id, protocol }, clientAddr),
    }),
    sessionId: 'ts_test',
    openedAt: 0,
    traffic: new EndpointTraffic(),
  }
}
