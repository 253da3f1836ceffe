import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { EndpointTraffic } from '../connector.ts'

/** Another process with this device's identity, and its address. */
interface SeenDuplicate {
  readonly ip: string
  /** Milliseconds since the epoch. */
  readonly seenAt: number
}

/** Remembers for some time that another process has this device's identity. */
export class DuplicateNotice {
  readonly #shownMs: number
  readonly #clock: Clock
  #seen: (SeenDuplicate & { readonly at: number }) | undefined

  constructor({ shownMs, clock }: { shownMs: number; clock: Clock }) {
    this.#shownMs = shownMs
    this.#clock = clock
  }

  /** Our gateway repeats the notice every ten minutes. Without it, the other process has disconnected. */
  get current(): SeenDuplicate | undefined {
    if (!this.#seen) return undefined
    const { ip, seenAt, at } = this.#seen
    return this.#clock.monotonic() - at < this.#shownMs ? { ip, seenAt } : undefined
  }

  /** Returns whether the notice is new. */
  note(ip: string): boolean {
    const isNews = this.current === undefined
    this.#seen = { ip, seenAt: this.#clock.now(), at: this.#clock.monotonic() }
    return isNews
  }
}

/** Names for binds that open no endpoint but carry a notice to our gateway. */
export const DRAIN_DOMAIN = 'drain.device-agent.internal'
export const COMPLETE_DOMAIN = 'complete.device-agent.internal'
export const TRAFFIC_DOMAIN = 'traffic.device-agent.internal'
/** URL in the answer, with the number of exchanges still in progress. */
export const DRAINED = /^drain:\d+$/

const MAX_HOST = 253
const MAX_WARNING = 1_000
/** Longer than any notice. */
const MAX_LENGTH = 4_096

const Notice = z.object({
  'device-agent': z.object({
    duplicate: z.object({ ip: z.string().max(64) }).optional(),
    gateway: z.string().max(64).optional(),
    awaited: z.array(z.string()).optional(),
    retry: z.object({}).optional(),
    policies: z
      .array(
        z.object({
          host: z.string().max(MAX_HOST),
          also: z.array(z.string().max(MAX_HOST)).optional(),
          warning: z.string().max(MAX_WARNING),
        }),
      )
      .optional(),
  }),
})

/** Asks our gateway to hold the names of the session until another session binds them. */
export function drainNotice(withinMs: number): string {
  return JSON.stringify({ 'device-agent': { drain: { within_ms: withinMs } } })
}

/** Tells our gateway that all wanted names are bound, so that it can release the device's other names. */
export const COMPLETE_NOTICE = JSON.stringify({
  'device-agent': { complete: {} },
})

/** Asks our gateway for the traffic of the session's endpoints. */
export const TRAFFIC_NOTICE = JSON.stringify({
  'device-agent': { traffic: {} },
})

const TRAFFIC_URL = /^traffic:(.+)$/
/** More than the gateway sends. */
const MAX_TRAFFIC_LENGTH = 512 * 1_024
const Count = z.number().nonnegative()
const TrafficRows = z.array(z.tuple([z.string().max(300), Count, Count, Count, Count]))

/** Reads the traffic in the URL of an answer. Undefined for another answer. */
export function trafficIn(url = ''): EndpointTraffic[] | undefined {
  const text = url.length > MAX_TRAFFIC_LENGTH ? undefined : TRAFFIC_URL.exec(url)?.[1]
  if (text === undefined) return undefined
  try {
    return TrafficRows.safeParse(JSON.parse(text)).data?.map(
      ([domain, requests, errors, bytesIn, bytesOut]) => {
        return { domain, requests, errors, bytesIn, bytesOut }
      },
    )
  } catch {
    return undefined
  }
}

/**
 * Returns the address of another process with this device's identity. Our gateway sends it in the version of
 * an update command.
 */
export function duplicateIn(version: string): string | undefined {
  return noticeIn(version)?.duplicate?.ip
}

/**
 * Returns the id of the gateway at the other end. Our gateway sends it, in the same way, to an agent with several
 * sessions there.
 */
export function gatewayIn(version: string): string | undefined {
  return noticeIn(version)?.gateway
}

/** Returns the names that visitors wait for, the longest wait first. Sent in the same way. */
export function awaitedIn(version: string): readonly string[] {
  return noticeIn(version)?.awaited ?? []
}

/** Whether our gateway confirms names again after it had refused some. Sent in the same way. */
export function isRetryNotice(version: string): boolean {
  return noticeIn(version)?.retry !== undefined
}

/** Returns why newer checks of our gateway refuse stored policies, by host. Sent in the same way. */
export function policyWarningsIn(version: string): ReadonlyMap<string, string> {
  const policies = noticeIn(version)?.policies ?? []
  return new Map(
    policies.flatMap(({ host, also = [], warning }) =>
      [host, ...also].map((name) => [name, warning] as const),
    ),
  )
}

function noticeIn(version: string): z.infer<typeof Notice>['device-agent'] | undefined {
  if (version.length > MAX_LENGTH) return undefined
  try {
    return Notice.safeParse(JSON.parse(version)).data?.['device-agent']
  } catch {
    return undefined
  }
}
