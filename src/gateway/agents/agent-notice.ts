import * as z from 'zod'
import type { ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import type { AgentEndpoint } from '../endpoints/endpoint.ts'
import { ServiceError } from '../records/service-error.ts'

/** Key of the texts that device-agent and the gateway exchange in addition to the SDK protocol. */
const MARK = 'device-agent'
/** Longest wait for the start of an answer, in seconds. */
const MAX_SECONDS = 3_600

const UpstreamPart = z.object({
  [MARK]: z.object({
    upstream: z.object({
      timeout_s: z.number().int().min(1).max(MAX_SECONDS).optional(),
      proxy_protocol: z.literal([1, 2]).optional(),
      max_connections: z.number().int().min(1).optional(),
    }),
  }),
})

/** Facts about the upstream of an endpoint, sent by device-agent. */
interface UpstreamNotice {
  /** Timeout until its answer begins, in milliseconds. */
  readonly answerMs: number | undefined
  /** Version of the PROXY header at the start of each connection. The SDK does not know about it. */
  readonly proxyProtocol: ProxyProtocol | undefined
  /** Connections that the upstream accepts at once. */
  readonly maxConnections: number | undefined
}

/**
 * Reads the notice from the metadata of a bind:
 * `{"device-agent":{"upstream":{"timeout_s":60,"proxy_protocol":2}}}`. Undefined if the metadata contains no
 * such notice.
 */
export function upstreamNoticeIn(metadata: string): UpstreamNotice | undefined {
  const { data } = UpstreamPart.safeParse(readMarked(metadata))
  if (!data) return undefined
  const { upstream } = data[MARK]
  const { timeout_s: seconds, proxy_protocol: proxyProtocol } = upstream
  const { max_connections: maxConnections } = upstream
  return { answerMs: seconds && seconds * 1_000, proxyProtocol, maxConnections }
}

/** Longest wait of a drain, whatever the agent asks for. */
const MAX_DRAIN_MS = 60_000
/** Size of the text of an Update command, in bytes. The agent ignores texts above 4,096 bytes. */
const MAX_UPDATE_BYTES = 3_000

const Notice = z.strictObject({
  [MARK]: z.union([
    z.strictObject({ drain: z.strictObject({ within_ms: z.number().int().nonnegative() }) }),
    z.strictObject({ complete: z.strictObject({}) }),
    z.strictObject({ traffic: z.strictObject({}) }),
  ]),
})

/** A notice in a bind message that opens no endpoint. */
export type AgentNotice =
  /** Time that the agent waits for exchanges under way. */
  | { readonly type: 'drain'; readonly withinMs: number }
  /** The agent has bound all names that it wants, except names that were refused. */
  | { readonly type: 'complete' }
  /** The agent asks for the traffic of its endpoints. */
  | { readonly type: 'traffic' }

/**
 * Reads a notice from the metadata of a bind: `{"device-agent":{"drain":{"within_ms":10000}}}`,
 * `{"device-agent":{"complete":{}}}` or `{"device-agent":{"traffic":{}}}`. Undefined for the metadata of an
 * endpoint. Throws ServiceError 301 for an invalid notice.
 */
export function agentNoticeIn(metadata: string): AgentNotice | undefined {
  const value = readMarked(metadata)
  if (value === undefined || upstreamNoticeIn(metadata) !== undefined) return undefined
  const { data } = Notice.safeParse(value)
  if (!data) throw new ServiceError(301, `The message below "${MARK}" is not valid.`)
  const notice = data[MARK]
  if ('complete' in notice) return { type: 'complete' }
  if ('traffic' in notice) return { type: 'traffic' }
  return {
    type: 'drain',
    withinMs: Math.min(notice.drain.within_ms, MAX_DRAIN_MS),
  }
}

/** URL of the answer to a `complete` notice. */
export const COMPLETED_URL = 'complete:'

/** URL of the answer to a drain, with the number of exchanges still under way. */
export const drainedUrl = (busy: number) => `drain:${busy}`

/** Endpoints in the answer to a `traffic` notice, the oldest. */
const MAX_COUNTED = 500

/**
 * URL of the answer to a `traffic` notice. Rows of host, requests, errors of the service, and bytes in and out,
 * since the endpoint opened.
 */
export function trafficUrl(endpoints: readonly AgentEndpoint[]): string {
  const rows = endpoints.slice(0, MAX_COUNTED).map(({ host, traffic }) => {
    const { garbage, unreachable, late } = traffic.outcomes.counts
    const errors = garbage + unreachable + late
    return [host, traffic.requests, errors, traffic.bytesIn, traffic.bytesOut]
  })
  return `traffic:${JSON.stringify(rows)}`
}

/** Update command that tells an agent that another process with its identity was refused. */
export function duplicateNotice(ip: string): object {
  const version = JSON.stringify({ [MARK]: { duplicate: { ip } } })
  return { Version: version, PermitMajorVersion: false }
}

/**
 * Update command that tells an agent which gateway a session is connected to. Two addresses of the agent may lead to
 * one gateway.
 */
export function gatewayNotice(gateway: string): object {
  return { Version: JSON.stringify({ [MARK]: { gateway } }), PermitMajorVersion: false }
}

/** Update command that tells an agent to bind refused names again. */
export function retryNotice(): object {
  return { Version: JSON.stringify({ [MARK]: { retry: {} } }), PermitMajorVersion: false }
}

/**
 * Update command that tells an agent which names visitors wait for. Takes as many names from `due` as fit.
 */
export function awaitedNotice(due: Set<string>): object {
  const hosts: string[] = []
  for (const host of due) {
    if (hosts.length > 0 && Buffer.byteLength(awaitedText([...hosts, host])) > MAX_UPDATE_BYTES)
      break
    hosts.push(host)
    due.delete(host)
  }
  return { Version: awaitedText(hosts), PermitMajorVersion: false }
}

const awaitedText = (hosts: readonly string[]) => JSON.stringify({ [MARK]: { awaited: hosts } })

function readMarked(metadata: string): unknown {
  // Most metadata contains no notice, and parsing invalid JSON costs an error with a stack trace.
  if (!metadata.includes(MARK)) return undefined
  try {
    const value = JSON.parse(metadata)
    return typeof value === 'object' && value !== null && MARK in value ? value : undefined
  } catch {
    return undefined
  }
}
