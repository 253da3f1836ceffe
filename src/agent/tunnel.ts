import * as z from 'zod'
import { isDeeper } from '../base/json-depth.ts'
import { readPolicyText } from './policy-text.ts'
import type { Reachable } from './probes/reach.ts'
import type { Reason } from './problem.ts'
import type { TunnelState } from './tunnel-state.ts'
import { formatForwardTarget, parseForwardTarget } from './upstreams/forward-target.ts'
import {
  type UpstreamOptions,
  UpstreamOptionsSchema,
  type UpstreamSettings,
} from './upstreams/upstream-options.ts'
import type { Upstream } from './upstreams/upstream-state.ts'
import type { VisitorReport } from './upstreams/visitor-report.ts'

export type JsonObject = Readonly<Record<string, unknown>>

/** More than any policy needs, and what the API takes. */
const MAX_DEPTH = 32
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const LATER_PROTOCOLS = new Set(['tcp', 'tls'])

const Protocol = z.string().transform((text, context): 'http' => {
  if (text === 'http') return text
  const message = LATER_PROTOCOLS.has(text)
    ? `${text} tunnels are not supported yet: use http`
    : 'must be http'
  context.addIssue({ code: 'custom', message })
  return z.NEVER
})

const ForwardsTo = z.string().transform((text, context) => {
  const target = parseForwardTarget(text)
  if (target) return formatForwardTarget(target)
  const message = 'must be host:port, :port or port, such as localhost:8001 or [::1]:8001'
  context.addIssue({ code: 'custom', message })
  return z.NEVER
})

const Domain = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine(isDomain, 'must be a domain name such as device123.site.example.com, without scheme')

/** A traffic policy as far as a tunnel looks into it: the service reads the rest. */
export const PolicyObject = z
  .custom<JsonObject>(isJsonObject, 'must be a JSON object')
  .meta({ type: 'object' })

/** Text, too, as a list shows it: what was read can be sent back. */
const PolicyInput = z.union([
  PolicyObject,
  z.string().transform((text, context) => {
    try {
      const value = readPolicyText(text)
      if (isJsonObject(value) && !isDeeper(value, MAX_DEPTH)) return value
      context.addIssue(`must say an object, not more than ${MAX_DEPTH} deep`)
    } catch (error) {
      context.addIssue(`must be JSON or YAML: ${(error as Error).message}`)
    }
    return z.NEVER
  }),
])

/** The body of a create or replace request, in its wire form, to a TunnelSpec. */
export const TunnelSpecSchema = z
  .strictObject({
    protocol: Protocol,
    forwards_to: ForwardsTo,
    domain: Domain,
    policy: PolicyInput.nullish(),
    upstream: UpstreamOptionsSchema.nullish().describe('how the service behind it is asked'),
  })
  .transform(
    ({ protocol, forwards_to, domain, policy, upstream }): TunnelSpec => ({
      protocol,
      forwardsTo: forwards_to,
      domain,
      policy: policy ?? null,
      ...(upstream && Object.keys(upstream).length > 0 && { upstream }),
    }),
  )

/** What somebody asked for. */
export interface TunnelSpec {
  readonly protocol: 'http'
  /** Normal form: `localhost:8001`, `[::1]:8001`. */
  readonly forwardsTo: string
  /** Lower case; may start with `*.`. */
  readonly domain: string
  /** As it was sent; null takes the device's default policy. */
  readonly policy: JsonObject | null
  /** Only where something is not as the settings say. */
  readonly upstream?: UpstreamOptions
}

/** What is true of a tunnel now. Times are milliseconds since the epoch. */
export interface TunnelStatus {
  readonly state: TunnelState
  readonly since: number
  /** Whether the device reaches its own public domain; nobody tries each tunnel's. */
  readonly reachable: Reachable
  readonly upstream: Upstream
  readonly upstreamSettings: UpstreamSettings
  /** What visitors got, where the service tells it. */
  readonly visitors?: VisitorReport | undefined
  readonly reason?: Reason
  readonly serviceCode?: string | undefined
  readonly remedy?: string
  readonly lastError?: string
  readonly nextRetryAt?: number | undefined
}

export interface Tunnel {
  readonly id: string
  readonly spec: TunnelSpec
  /** Public URL, also while the tunnel is not online. */
  readonly url: string
  readonly createdAt: number
  readonly updatedAt: number
  readonly status: TunnelStatus
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

/** True for what JSON calls an object. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
