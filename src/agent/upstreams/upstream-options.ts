import * as z from 'zod'
import type { ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import { HEALTH_FORM, HEALTH_PATTERN, type UpstreamHealth } from '../../settings/forms.ts'

/** Options for checks and connections of a tunnel's service. Defaults come from the settings. */
export interface UpstreamOptions {
  /** Seconds until the start of an answer. */
  readonly timeout?: number | undefined
  readonly health?: UpstreamHealth | undefined
  /**
   * Whether the service speaks HTTP/2: by TLS handshake, or without TLS by prior knowledge (RFC 9113 3.3),
   * like gRPC servers.
   */
  readonly http2?: boolean | undefined
  /** Version of the PROXY header at the start of each connection. */
  readonly proxy_protocol?: ProxyProtocol | undefined
  /** False: any certificate of a TLS service is accepted. */
  readonly verify_tls?: boolean | undefined
  /** Oldest TLS version that a service may use. If set, weak ciphers and short keys are allowed too. */
  readonly tls_min_version?: TlsMinVersion | undefined
  /** Maximum number of connections to the service. Default: our gateway finds it out. */
  readonly max_connections?: number | undefined
}

export const TLS_MIN_VERSIONS = ['1.0', '1.1', '1.2'] as const
export type TlsMinVersion = (typeof TLS_MIN_VERSIONS)[number]

/** Options in force for a tunnel. */
export interface UpstreamSettings extends UpstreamOptions {
  readonly timeout: number
  readonly health: UpstreamHealth
  readonly http2: boolean
  readonly verify_tls: boolean
}

/** Defaults for options that a tunnel does not set. */
export type UpstreamDefaults = Omit<UpstreamSettings, 'http2' | 'verify_tls'>

/** Default of our gateway. */
export const GRANTED_TIMEOUT_S = 60
export const DEFAULT_UPSTREAM: UpstreamSettings = {
  timeout: GRANTED_TIMEOUT_S,
  health: 'tcp',
  http2: false,
  verify_tls: true,
}

const TIMEOUT_RANGE = 'must be a whole number of seconds from 1 to 3600'
export const TLS_MIN_VERSION_FORM = 'must be 1.0, 1.1 or 1.2, as text'
/** Equal to the number of streams of a device. */
const MAX_MAX_CONNECTIONS = 448
export const MAX_CONNECTIONS_RANGE = `must be a whole number from 1 to ${MAX_MAX_CONNECTIONS}`
export const PROXY_PROTOCOL_FORM = 'must be the number 1 or 2'

export const UpstreamOptionsSchema = z.strictObject({
  timeout: z
    .int(TIMEOUT_RANGE)
    .min(1, TIMEOUT_RANGE)
    .max(3_600, TIMEOUT_RANGE)
    .optional()
    .describe('seconds to wait for the first byte of a response; default: AGENT_UPSTREAM_TIMEOUT'),
  health: z
    .string(HEALTH_FORM)
    .regex(HEALTH_PATTERN, HEALTH_FORM)
    .transform((text) => text as UpstreamHealth)
    .optional()
    .describe(
      'health check: off, tcp, or a path that must return a status below 500; default: AGENT_UPSTREAM_HEALTH',
    ),
  http2: z
    .boolean('must be true or false')
    .optional()
    .describe('true: use HTTP/2, for example for gRPC; without https by prior knowledge'),
  proxy_protocol: z
    .literal([1, 2], PROXY_PROTOCOL_FORM)
    .optional()
    .describe(
      'version of the PROXY header sent at the start of each connection; default: no header',
    ),
  verify_tls: z
    .boolean('must be true or false')
    .optional()
    .describe('whether to verify the certificate of an https upstream; default: true'),
  tls_min_version: z
    .enum(TLS_MIN_VERSIONS, TLS_MIN_VERSION_FORM)
    .optional()
    .describe(
      'for old https upstreams: oldest TLS version, 1.0, 1.1 or 1.2; also allows weak ciphers and short keys; default: 1.2 without them',
    ),
  max_connections: z
    .int(MAX_CONNECTIONS_RANGE)
    .min(1, MAX_CONNECTIONS_RANGE)
    .max(MAX_MAX_CONNECTIONS, MAX_CONNECTIONS_RANGE)
    .optional()
    .describe(
      'connections that the upstream accepts at once; further requests wait at the gateway; default: learned from refused connections',
    ),
})
