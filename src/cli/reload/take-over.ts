import type { Agent } from '../../agent/agent.ts'
import type { LinkStatus } from '../../agent/agent-status.ts'
import { hasSession } from '../../agent/link-state.ts'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'

/**
 * How long a successor tries to have all endpoints before it serves with those that it has, from when
 * the process before has let go. Less than what that one waits for it.
 */
const TAKE_OVER_MS = 15_000

export interface TakenOver {
  readonly succession: Pick<Agent['succession'], 'settled'>
  status(): { readonly link: Pick<LinkStatus, 'state' | 'lastError'> }
}

/** Of the names of the process before, by this one. Its time begins when it is made. */
export class TakeOver {
  readonly #clock: Clock
  readonly #by: number

  constructor(clock: Clock) {
    this.#clock = clock
    this.#by = clock.monotonic() + TAKE_OVER_MS
  }

  /**
   * Resolves when the names are here, or `gone` has: nobody waits any more. Those that are not in time
   * come later: our gateway holds them. Throws a StartError when there is no link by then.
   */
  async complete(agent: TakenOver, gone: Promise<void>, stop: AbortSignal): Promise<void> {
    const over = new AbortController()
    const stopped = new Promise<never>((_, reject) => {
      const onStop = () => reject(new StartError('Stopped before the takeover.'))
      stop.addEventListener('abort', onStop, { once: true, signal: over.signal })
      if (stop.aborted) onStop()
    })
    const leftMs = Math.max(0, this.#by - this.#clock.monotonic())
    const late = this.#clock.sleep(leftMs, over.signal).then(() => requireLink(agent))
    // Whatever ends first, the others are nobody's business.
    late.catch(() => {})
    try {
      await Promise.race([agent.succession.settled(), gone, stopped, late])
    } finally {
      over.abort()
    }
  }
}

function requireLink(agent: TakenOver): void {
  const { state, lastError } = agent.status().link
  if (!hasSession(state)) throw new StartError(`The new process has lost its link: ${lastError}`)
}
