import { existsSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { INSTALLED_SOCKET } from '../../api/local-socket.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from '../local/local-agent.ts'
import { plainLine } from '../local/terminal-text.ts'
import { unpassedCredential } from '../local/unpassed-credential.ts'

/** Given to the service by systemd. */
const CREDENTIAL = 'etc/credstore/svc-authtoken'
const POLL_MS = 200
/** The link is there before the name of the agent is online. */
const NAME_WITHIN_MS = 10_000

/** The parts of the status that this command uses. An agent of another version has more. */
const Status = z.object({
  advice: z.array(z.object({ problem: z.string(), remedy: z.string() })),
  started_at: z.string(),
  link: z.object({ state: z.string(), last_error: z.string().nullable() }),
  own_endpoint: z.object({ state: z.string() }).nullable(),
})
type Status = z.infer<typeof Status>

export interface SeenLink {
  readonly isUp: boolean
  /** The most important problem with its fix. */
  readonly problem: string | undefined
  /** The problem was reported during the wait. */
  readonly isTold: boolean
}

/** Waits until the agent of the service has a link and its own name is online. Reports problems meanwhile. */
export async function waitForLink(context: CommandContext, withinMs: number): Promise<SeenLink> {
  const { stderr, stop } = context
  const startedAt = systemClock.monotonic()
  let upAt: number | undefined
  let told = ''
  for (;;) {
    const seen = await look(context)
    const now = systemClock.monotonic()
    const isUp = seen instanceof StartError ? false : seen.link.state === 'up'
    if (isUp) upAt ??= now
    const cause = unpassedBy(context, seen)
    const problem = cause ?? problemOf(seen)
    const hasLink = isUp && (problem === undefined || now - (upAt ?? now) > NAME_WITHIN_MS)
    // Time does not mend a missing credential.
    const isDone = hasLink || cause !== undefined
    if (isDone || now - startedAt > withinMs || stop.aborted) {
      const isTold = problem === told
      return { isUp, problem: isUp ? problem : (problem ?? 'the agent is connecting'), isTold }
    }
    if (problem !== undefined && problem !== told && !isUp && !(seen instanceof StartError)) {
      stderr.write(`${problem}\n`)
      told = problem
    }
    await systemClock.sleep(POLL_MS, stop).catch(() => {})
  }
}

async function look(context: CommandContext): Promise<Status | StartError> {
  const path = join(context.root ?? '/', INSTALLED_SOCKET)
  if (!existsSync(path)) return new StartError('The agent has not opened its socket yet.')
  try {
    return await new LocalAgent(path, context).ask({ path: '/status' }, Status)
  } catch (error) {
    if (error instanceof StartError) return error
    throw error
  }
}

/** Says that systemd does not pass the authtoken, as `status` does. */
function unpassedBy({ root = '/' }: CommandContext, seen: Status | StartError): string | undefined {
  if (seen instanceof StartError) return undefined
  const cause = unpassedCredential(seen, join(root, CREDENTIAL))
  return cause && plainLine(`${cause.problem}. ${cause.remedy}`)
}

/** Undefined while there is nothing to tell. */
function problemOf(seen: Status | StartError): string | undefined {
  if (seen instanceof StartError) return seen.message
  const { link, own_endpoint: own, advice } = seen
  if (link.state === 'up' && (!own || own.state === 'online')) return undefined
  const [first] = advice
  if (first) return plainLine(`${first.problem.replace(/\.$/, '')}. ${first.remedy}`)
  return link.state === 'up' ? 'The name of the agent is not online yet.' : undefined
}
