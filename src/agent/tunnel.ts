import { randomBytes } from 'node:crypto'
import { isIP } from 'node:net'
import { isDeepStrictEqual } from 'node:util'
import * as z from 'zod'
import { isDeeper } from '../base/json.ts'
import { parseListenAddress } from '../base/listen-address.ts'
import type { Condition } from './condition.ts'
import type { Reachable } from './probes/reach.ts'
import type { Reason } from './problem.ts'
import type { TunnelState } from './tunnel-state.ts'
import {
  formatForwardTarget,
  parseForwardTarget,
  type TunnelProtocol,
} from './upstreams/forward-target.ts'
import {
  type UpstreamOptions,
  UpstreamOptionsSchema,
  type UpstreamSettings,
} from './upstreams/upstream-options.ts'
import type { Upstream, UpstreamFlaw, VisitorReport } from './upstreams/upstream-state.ts'

export type JsonObject = Readonly<Record<string, unknown>>

/** More than any policy needs. Same limit as in the API. */
const MAX_DEPTH = 32
const HOST_DOMAIN = 'must be a domain name such as device123.site.example.com, without scheme'
const TCP_DOMAIN = 'must be host:port for a tcp tunnel, such as gateway.example.com:20017'
const URL_FORM = /^(https?|tls|tcp):\/\/(.+?)(:\d+)?\/?$/
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

const Protocol = z.string().transform((text, context): TunnelProtocol => {
  if (text === 'http' || text === 'tcp' || text === 'tls') return text
  context.addIssue({ code: 'custom', message: 'must be http, tcp or tls' })
  return z.NEVER
})

const ForwardsTo = z.string().transform((text, context) => {
  const target = parseForwardTarget(text)
  if (target) return formatForwardTarget(target)
  const message =
    'must be host:port, :port or port (1 to 65535), such as localhost:8001 or [::1]:8001, https://host:port, or unix:/path'
  context.addIssue({ code: 'custom', message })
  return z.NEVER
})

const Domain = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine(
    (text) => text === '' || isDomain(text) || isAddress(text),
    'must be a domain name such as device123.site.example.com, without scheme; for tcp host:port such as gateway.example.com:20017',
  )

/** A traffic policy, as far as a tunnel checks it. The service checks the rest. */
export const PolicyObject = z
  .custom<JsonObject>(isJsonObject, 'must be a JSON object')
  .meta({ type: 'object' })

/**
 * Also accepts JSON text, as shown in a list, so that a policy can be sent back as it was read. YAML is read
 * before: see `withReadPolicies`.
 */
const PolicyInput = z.preprocess(
  (input, context) => (typeof input === 'string' ? policyOf(input, context) : input),
  PolicyObject,
)

function policyOf(text: string, context: z.RefinementCtx): unknown {
  try {
    const value: unknown = JSON.parse(text)
    if (isJsonObject(value) && !isDeeper(value, MAX_DEPTH)) return value
    context.addIssue(`must contain an object with at most ${MAX_DEPTH} levels of nesting`)
  } catch (error) {
    context.addIssue(`must be JSON: ${(error as Error).message}`)
  }
  return z.NEVER
}

/** Body of a create or replace request, as sent by clients. */
export const TunnelBody = z.strictObject({
  protocol: Protocol,
  forwards_to: ForwardsTo,
  domain: Domain.describe(
    'public host name, for a tcp tunnel host:port; if left out, the gateway gives a random name or a free port, which the tunnel keeps',
  ),
  policy: PolicyInput.nullish(),
  upstream: UpstreamOptionsSchema.nullish().describe('upstream options'),
  pooling_enabled: z
    .boolean()
    .nullish()
    .describe('share the address with other devices of the account that also enable pooling'),
})

/** Converts a body to a TunnelSpec. */
export const TunnelSpecSchema = z
  .preprocess(withoutDomain, TunnelBody)
  .transform((body, context): TunnelSpec => {
    const { protocol, forwards_to, domain, policy, upstream, pooling_enabled } = body
    const isRight = protocol === 'tcp' ? isAddress(domain) : isDomain(domain)
    if (domain !== '' && !isRight) {
      const message = protocol === 'tcp' ? TCP_DOMAIN : HOST_DOMAIN
      context.addIssue({ code: 'custom', path: ['domain'], message })
    }
    if (protocol !== 'http' && upstream?.http2) {
      const message = `is only for http tunnels; a ${protocol} tunnel forwards raw bytes`
      context.addIssue({ code: 'custom', path: ['upstream', 'http2'], message })
    }
    if (protocol !== 'http' && forwards_to.startsWith('https:')) {
      const message = 'https:// is only for http tunnels; tcp and tls tunnels forward raw bytes'
      context.addIssue({ code: 'custom', path: ['forwards_to'], message })
    }
    if (upstream?.verify_tls === false && !forwards_to.startsWith('https:')) {
      const message = 'is only for https:// upstreams'
      context.addIssue({ code: 'custom', path: ['upstream', 'verify_tls'], message })
    }
    if (upstream?.tls_min_version && !forwards_to.startsWith('https:')) {
      const message = 'is only for https:// upstreams'
      context.addIssue({ code: 'custom', path: ['upstream', 'tls_min_version'], message })
    }
    return {
      protocol,
      forwardsTo: forwards_to,
      domain,
      policy: policy ?? null,
      ...(upstream && Object.keys(upstream).length > 0 && { upstream }),
      ...(pooling_enabled && { isPooled: true }),
    }
  })

/** A tunnel as requested. */
export interface TunnelSpec {
  readonly protocol: TunnelProtocol
  /** Normal form, see `formatForwardTarget`. */
  readonly forwardsTo: string
  /** Lower case, may start with `*.`. For `tcp`: `host:port`. Empty until the service has chosen it. */
  readonly domain: string
  /** As requested. Null: the device's default policy. */
  readonly policy: JsonObject | null
  /** Only options that differ from the settings. */
  readonly upstream?: UpstreamOptions
  /** Set if other devices may serve its address too. */
  readonly isPooled?: true
}

/** Whether a new version of a tunnel has the policy and the protocol of the stored one. */
export function hasSamePolicy(spec: TunnelSpec, before: TunnelSpec | undefined): boolean {
  return spec.protocol === before?.protocol && isDeepStrictEqual(spec.policy, before.policy)
}

/** Current state of a tunnel. Times are milliseconds since the epoch. */
export interface TunnelStatus {
  readonly state: TunnelState
  /** The state, the link and the service combined. */
  readonly condition: Condition
  readonly conditionSince: number
  readonly since: number
  /** Whether the device can reach its own public domain. The domains of tunnels are not probed. */
  readonly reachable: Reachable
  readonly upstream: Upstream
  /** Says more about an upstream that fails its check. */
  readonly upstreamFlaw?: UpstreamFlaw | undefined
  readonly upstreamSettings: UpstreamSettings
  /** Report about visitors, if the service sends it. */
  readonly visitors?: VisitorReport | undefined
  /** Why newer checks of the service refuse the policy. It runs as before. */
  readonly policyWarning?: string | undefined
  readonly reason?: Reason
  readonly serviceCode?: string | undefined
  readonly remedy?: string
  readonly lastError?: string
  readonly nextRetryAt?: number | undefined
}

export interface Tunnel {
  readonly id: string
  readonly spec: TunnelSpec
  /** Public URL, also while the tunnel is offline. */
  readonly url: string
  readonly createdAt: number
  readonly updatedAt: number
  readonly status: TunnelStatus
}

/** Adds an empty domain, because a tunnel may be created without a domain. */
function withoutDomain(body: unknown): unknown {
  return isJsonObject(body) ? { domain: '', ...body } : body
}

/** Returns the domain in the URL of an open tunnel: the host, for a TCP tunnel `host:port`. */
export function domainIn(url: string | undefined): string | undefined {
  const [, scheme, host, port] = URL_FORM.exec(url ?? '') ?? []
  const domain = scheme === 'tcp' ? `${host}${port ?? ''}` : host?.toLowerCase()
  const isRight = scheme === 'tcp' ? isAddress : isDomain
  return domain !== undefined && isRight(domain) ? domain : undefined
}

function isAddress(text: string): boolean {
  const { host, port } = parseListenAddress(text) ?? { host: '', port: 0 }
  return (
    port > 0 && (isIP(host) !== 0 || host === 'localhost' || (isDomain(host) && host[0] !== '*'))
  )
}

function isDomain(text: string): boolean {
  const labels = text.replace(/^\*\./, '').split('.')
  const last = labels.at(-1) ?? ''
  return (
    text.length <= 253 &&
    labels.length >= 2 &&
    labels.every((label) => LABEL.test(label)) &&
    !/^\d+$/.test(last)
  )
}

/** Whether the value is an object in the sense of JSON. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function newTunnelId(): string {
  return `tun_${randomBytes(10).toString('hex')}`
}

/** Returns the URL of a tunnel before it has been online, empty if it is not known yet. */
export function expectedUrl(
  { protocol, domain }: TunnelSpec,
  urlOf: (domain: string) => string,
): string {
  if (domain === '') return ''
  if (protocol === 'http') return urlOf(domain)
  if (protocol === 'tls') return urlOf(domain).replace(/^https:/, 'tls:')
  return `tcp://${domain}`
}
