import type { Clock } from '../../base/clock.ts'
import { Heartbeat } from '../../muxado/heartbeat.ts'
import type { Session } from '../../muxado/session.ts'
import type { AgentIdentity } from '../endpoints/endpoint.ts'
import type { AgentLimits } from './agent-deps.ts'

/** An agent that owes an echo counts as silent after this time or four round trips, whichever is longer. */
const SILENT_MS = 1_400

export interface AgentHeartbeatOptions {
  readonly session: Session
  readonly identity: AgentIdentity
  readonly limits: AgentLimits
  readonly clock: Clock
  /** Called once, when the agent has not answered. */
  onMissed(): void
}

/** Checks whether an agent is alive. Sends heartbeats, unless the agent sends its own and wants no others. */
export class AgentHeartbeat {
  readonly #clock: Clock
  readonly #ownHeartbeatMs: number | undefined
  readonly #heartbeat: Heartbeat
  #latencyMs: number | undefined
  /** Time of the agent's last own heartbeat; monotonic. */
  #heardAt: number
  /** Time of the last requested answer; monotonic. */
  #answeredAt = Number.NEGATIVE_INFINITY

  constructor({ session, identity, limits, clock, onMissed }: AgentHeartbeatOptions) {
    const { ownHeartbeatMs } = identity
    this.#clock = clock
    this.#ownHeartbeatMs = ownHeartbeatMs
    this.#heardAt = clock.monotonic()
    this.#heartbeat = new Heartbeat({
      session,
      clock,
      intervalMs: ownHeartbeatMs ?? limits.heartbeatIntervalMs,
      toleranceMs: limits.heartbeatToleranceMs,
      // On a metered link the agent's own heartbeats are enough. This side only sends when they are missing.
      ...(ownHeartbeatMs !== undefined && { heardAt: () => this.#heardAt }),
      onLatency: (ms) => {
        this.#latencyMs = ms
      },
      onMissed,
    })
  }

  /** Round trip of the last heartbeat, in milliseconds. Undefined before the first echo. */
  get latencyMs(): number | undefined {
    return this.#latencyMs
  }

  start(): void {
    this.#heartbeat.start()
  }

  stop(): void {
    this.#heartbeat.stop()
  }

  /** Records a heartbeat that the agent sent itself. */
  heard(): void {
    this.#heardAt = this.#clock.monotonic()
  }

  /** Sends a heartbeat now. `isSilent` shows the result soon after. */
  ask(): void {
    this.#heartbeat.beat()
  }

  /** Whether nothing comes back. The link may be dead although neither side has closed it. */
  get isSilent(): boolean {
    return this.#heartbeat.owedMs >= Math.max(SILENT_MS, 4 * (this.#latencyMs ?? 0))
  }

  /**
   * Sends a heartbeat and returns whether an echo arrives within `withinMs`. On a metered link, an answer
   * stays valid until the agent's next own heartbeat is due, because a duplicate asks every few seconds.
   */
  async answers(withinMs: number): Promise<boolean> {
    const goodUntil = this.#answeredAt + (this.#ownHeartbeatMs ?? 0)
    if (this.#clock.monotonic() < goodUntil) return true
    const isAlive = await this.#heartbeat.answers(withinMs)
    if (isAlive) this.#answeredAt = this.#clock.monotonic()
    return isAlive
  }
}
