import {
  type AgentEndpoint,
  type ConnectedAgent,
  EndpointTraffic,
} from '../../src/gateway/endpoints/endpoint.ts'
import { PolicyBench } from './policy-exchange.ts'

/** Without rules, and the same for all endpoints: each clock costs a language of its own. */
const { policy: NO_POLICY } = new PolicyBench(null)

/** An agent that is connected in name only; ids are padded so that they sort like `suffix`. */
export function connectedAgent(suffix: string, change: Partial<ConnectedAgent> = {}) {
  const agent: ConnectedAgent = {
    id: `ts_${suffix.padStart(27, '0')}`,
    identity: {
      tokenHash: '',
      credentialId: 'cr_000000000000000000000000000',
      ownerId: null,
      presentedClientId: undefined,
      deviceId: undefined,
      instance: undefined,
      agentVersion: '1.2.3',
      os: 'linux',
      arch: 'arm64',
      hostname: `press-${suffix}`,
      metadata: '',
      remoteAddress: '192.0.2.7:50000',
      unsupported: { restart: '', stop: '', update: '' },
    },
    startedAt: 0,
    latencyMs: 12,
    duplicate: undefined,
    endpoints: () => [],
    refusedEndpoints: () => [],
    command: async () => {},
    stopTunnel: () => {},
    end: () => {},
    ...change,
  }
  return agent
}

/** The same with one endpoint, whose counters the test moves. */
export function agentWithEndpoint(suffix: string) {
  const traffic = new EndpointTraffic()
  const endpoint = {
    type: 'agent',
    ownerId: null,
    id: `ep_${suffix.padStart(27, '0')}`,
    url: `https://press-${suffix}.site.test`,
    host: `press-${suffix}.site.test`,
    protocol: 'https',
    forwardsTo: 'localhost:80',
    trafficPolicy: '{"on_http_request":[]}',
    policy: NO_POLICY,
    metadata: '',
    sessionId: `ts_${suffix.padStart(27, '0')}`,
    openedAt: 0,
    traffic,
  } as Partial<AgentEndpoint> as AgentEndpoint
  return { agent: connectedAgent(suffix, { endpoints: () => [endpoint] }), traffic }
}
