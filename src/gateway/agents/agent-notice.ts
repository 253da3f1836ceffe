import * as z from 'zod'
import type { ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import { ServiceError } from '../records/service-error.ts'

/** What an agent of ours and the gateway say beyond the SDK stands in texts, below this key. */
const MARK = 'device-agent'
/** Nobody waits longer for the begin of an answer. */
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

/** What an agent of ours says of the service behind an endpoint. */
interface UpstreamNotice {
  /** How long it may take to begin an answer. */
  readonly answerMs: number | undefined
  /** Each connection begins with this version of the PROXY header, of which the SDK knows nothing. */
  readonly proxyProtocol: ProxyProtocol | undefined
  /** How many connections the service takes at once. */
  readonly maxConnections: number | undefined
}

/**
 * Reads it from the metadata of a bind: `{"device-agent":{"upstream":{"timeout_s":60,"proxy_protocol":2}}}`.
 * Undefined where nothing of that kind is said.
 */
export function upstreamNoticeIn(metadata: string): UpstreamNotice | undefined {
  const { data } = UpstreamPart.safeParse(readMarked(metadata))
  if (!data) return undefined
  const { upstream } = data[MARK]
  const { timeout_s: seconds, proxy_protocol: proxyProtocol } = upstream
  const { max_connections: maxConnections } = upstream
  return { answerMs: seconds && seconds * 1_000, proxyProtocol, maxConnections }
}

/** A drain waits no longer, whatever is asked for. */
const MAX_DRAIN_MS = 60_000
/** The text of an Update command; the agent ignores a text above 4,096. */
const MAX_UPDATE_BYTES = 3_000

const Notice = z.strictObject({
  [MARK]: z.union([
    z.strictObject({ drain: z.strictObject({ within_ms: z.number().int().nonnegative() }) }),
    z.strictObject({ complete: z.strictObject({}) }),
  ]),
})

/** What a bind says that is none. */
export type AgentNotice =
  /** How long the agent waits at most for what is under way. */
  | { readonly type: 'drain'; readonly withinMs: number }
  /** It has bound all names that it wants, as far as they can be bound. */
  | { readonly type: 'complete' }

/**
 * What the metadata of a bind says instead: `{"device-agent":{"drain":{"within_ms":10000}}}` or
 * `{"device-agent":{"complete":{}}}`. Undefined for the metadata of an endpoint. Throws ServiceError 301 when
 * it is neither.
 */
export function agentNoticeIn(metadata: string): AgentNotice | undefined {
  const value = readMarked(metadata)
  if (value === undefined || upstreamNoticeIn(metadata) !== undefined) return undefined
  const { data } = Notice.safeParse(value)
  if (!data) throw new ServiceError(301, `The message below "${MARK}" is not valid.`)
  const notice = data[MARK]
  if ('complete' in notice) return { type: 'complete' }
  return { type: 'drain', withinMs: Math.min(notice.drain.within_ms, MAX_DRAIN_MS) }
}

/** The URL that answers an agent whose names are complete. */
export const COMPLETED_URL = 'complete:'

/** The URL that answers a drain: how many exchanges are still under way. */
export const drainedUrl = (busy: number) => `drain:${busy}`

/** What tells an agent that another process with its identity was refused: the Update command. */
export function duplicateNotice(ip: string): object {
  const version = JSON.stringify({ [MARK]: { duplicate: { ip } } })
  return { Version: version, PermitMajorVersion: false }
}

/**
 * The Update command that tells an agent which names visitors wait for: as many of them as fit, which are
 * taken out of `due`.
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
  // Most have none, and what is no JSON is an error with a stack.
  if (!metadata.includes(MARK)) return undefined
  try {
    const value = JSON.parse(metadata)
    return typeof value === 'object' && value !== null && MARK in value ? value : undefined
  } catch {
    return undefined
  }
}
