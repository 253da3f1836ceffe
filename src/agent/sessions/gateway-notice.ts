import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'

/** Where another process with this device's identity is. */
interface SeenDuplicate {
  readonly ip: string
  /** Milliseconds since the epoch. */
  readonly seenAt: number
}

/** That somebody else has this device's identity, for as long as it is news. */
export class DuplicateNotice {
  readonly #shownMs: number
  readonly #clock: Clock
  #seen: (SeenDuplicate & { readonly at: number }) | undefined

  constructor({ shownMs, clock }: { shownMs: number; clock: Clock }) {
    this.#shownMs = shownMs
    this.#clock = clock
  }

  /** Our gateway tells of it every ten minutes: when it does not, the other one has gone. */
  get current(): SeenDuplicate | undefined {
    if (!this.#seen) return undefined
    const { ip, seenAt, at } = this.#seen
    return this.#clock.monotonic() - at < this.#shownMs ? { ip, seenAt } : undefined
  }

  /** Answers whether that is news. */
  note(ip: string): boolean {
    const isNews = this.current === undefined
    this.#seen = { ip, seenAt: this.#clock.now(), at: this.#clock.monotonic() }
    return isNews
  }
}

/** Names of binds that open nothing: they carry a message to our gateway. */
export const DRAIN_DOMAIN = 'drain.device-agent.internal'
export const COMPLETE_DOMAIN = 'complete.device-agent.internal'
/** The URL that answers it, with the number of exchanges that were still under way. */
export const DRAINED = /^drain:\d+$/

/** Longer than any notice is. */
const MAX_LENGTH = 4_096

const Notice = z.object({
  'device-agent': z.object({
    duplicate: z.object({ ip: z.string().max(64) }).optional(),
    awaited: z.array(z.string()).optional(),
  }),
})

/** Asks our gateway to hold the names of the session until others bind them. */
export function drainNotice(withinMs: number): string {
  return JSON.stringify({ 'device-agent': { drain: { within_ms: withinMs } } })
}

/** Tells our gateway that all names are bound that this device wants: nobody has the others that it had. */
export const COMPLETE_NOTICE = JSON.stringify({ 'device-agent': { complete: {} } })

/** Who has the identity of this device, too, as our gateway says in the version of an update command. */
export function duplicateIn(version: string): string | undefined {
  return noticeIn(version)?.duplicate?.ip
}

/** The names that visitors wait for, the longest wait first, said in the same way. */
export function awaitedIn(version: string): readonly string[] {
  return noticeIn(version)?.awaited ?? []
}

function noticeIn(version: string): z.infer<typeof Notice>['device-agent'] | undefined {
  if (version.length > MAX_LENGTH) return undefined
  try {
    return Notice.safeParse(JSON.parse(version)).data?.['device-agent']
  } catch {
    return undefined
  }
}
