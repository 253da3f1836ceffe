import * as z from 'zod'
import { ServiceError } from '../records/service-error.ts'
import { upstreamNoticeIn } from './upstream-notice.ts'

/** What an agent of ours and the gateway say beyond the SDK stands in texts, below this key. */
const MARK = 'device-agent'
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
  if (!metadata.includes(MARK)) return undefined
  try {
    const value = JSON.parse(metadata)
    return typeof value === 'object' && value !== null && MARK in value ? value : undefined
  } catch {
    return undefined
  }
}
