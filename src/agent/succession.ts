import type { AgentStatus } from './agent-status.ts'
import type { Link } from './link.ts'
import { hasSession } from './link-state.ts'
import type { Tunnel } from './tunnel.ts'

/** `yielding`: another process of this device is about to have what this one serves. */
type State = 'serving' | 'yielding'

/** What is known of the agent; see `Agent`. */
export interface Known {
  status(): Pick<AgentStatus, 'link' | 'ownEndpoint'>
  list(): readonly Tunnel[]
  onChange(listener: () => void): () => void
}

export interface SuccessionOptions {
  readonly agent: Known
  readonly link: () => Pick<Link, 'yield' | 'resume'>
  /** The service is not a gateway of ours. */
  readonly isHosted: boolean
  readonly onResume: () => void
}

/**
 * Two processes of one device, of which the newer takes over. They go by the same instance, so that
 * our gateway lets it have the names, with what is under way ending where it is.
 *
 * INVARIANTS
 * - While it yields, the older one opens nothing and connects nothing, whatever it loses: it would take
 *   back what the other one has.
 * - It stops without `resume()` when the other one serves, and resumes when that one has gone.
 */
export class Succession {
  readonly #options: SuccessionOptions
  #state: State = 'serving'

  constructor(options: SuccessionOptions) {
    this.#options = options
  }

  get isYielding(): boolean {
    return this.#state === 'yielding'
  }

  /** At its end: the hosted service gives a name to the other process when it is free. */
  get hasToClose(): boolean {
    return this.isYielding && this.#options.isHosted
  }

  yield(): void {
    this.#state = 'yielding'
    this.#options.link().yield()
  }

  /** The other process has gone: what it may have had is taken back. */
  resume(): void {
    this.#state = 'serving'
    this.#options.link().resume()
    this.#options.onResume()
  }

  /** Resolves when the link is up and it is known of each endpoint whether it could be opened. */
  settled(): Promise<void> {
    const { agent } = this.#options
    return new Promise((resolve) => {
      const look = () => {
        if (!isSettled(agent.status(), agent.list())) return
        off()
        resolve()
      }
      const off = agent.onChange(look)
      look()
    })
  }
}

function isSettled(
  { link, ownEndpoint }: Pick<AgentStatus, 'link' | 'ownEndpoint'>,
  tunnels: readonly Tunnel[],
): boolean {
  if (!hasSession(link.state)) return false
  const endpoints = [...tunnels.map(({ status }) => status), ...(ownEndpoint ? [ownEndpoint] : [])]
  // One that waits for nothing in particular has not heard of the link yet.
  return endpoints.every(
    ({ state, lastError }) => state !== 'opening' && (state !== 'waiting' || lastError),
  )
}
