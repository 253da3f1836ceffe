import * as z from 'zod'

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
