import type { Clock } from '../../base/clock.ts'
import { Heartbeat } from '../../muxado/heartbeat.ts'
import type { Session } from '../../muxado/session.ts'
import type { AgentIdentity } from '../endpoints/endpoint.ts'
import type { AgentLimits } from './agent-deps.ts'

/** After that, or four round trips, an agent that owes an echo is silent. */
const SILENT_MS = 1_400

export interface AgentHeartbeatOptions {
  readonly session: Session
  readonly identity: AgentIdentity
  readonly limits: AgentLimits
  readonly clock: Clock
  /** Once; the agent has not answered. */
  onMissed(): void
}

/** Whether an agent is alive: it is asked, unless it sends heartbeats of its own and wants none. */
export class AgentHeartbeat {
  readonly #clock: Clock
  readonly #ownHeartbeatMs: number | undefined
  readonly #heartbeat: Heartbeat
  #latencyMs: number | undefined
  /** Monotonic; of the agent's own heartbeats. */
  #heardAt: number
  /** When it last answered because somebody asked; monotonic. */
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
      // On a metered link its own are enough; ours ask only when they are missing.
      ...(ownHeartbeatMs !== undefined && { heardAt: () => this.#heardAt }),
      onLatency: (ms) => {
        this.#latencyMs = ms
      },
      onMissed,
    })
  }

  /** Round trip of the last one; undefined before the first echo. */
  get latencyMs(): number | undefined {
    return this.#latencyMs
  }

  /** Throws like `Session.open`. */
  start(): void {
    this.#heartbeat.start()
  }

  stop(): void {
    this.#heartbeat.stop()
  }

  /** The agent has sent a heartbeat of its own. */
  heard(): void {
    this.#heardAt = this.#clock.monotonic()
  }

  /** Asks the agent now; `isSilent` tells soon. */
  ask(): void {
    this.#heartbeat.beat()
  }

  /** Nothing comes back: the link may be dead, although nobody has closed it. */
  get isSilent(): boolean {
    return this.#heartbeat.owedMs >= Math.max(SILENT_MS, 4 * (this.#latencyMs ?? 0))
  }

  /**
   * Whether an echo comes within so many ms; the beat goes out at once. On a metered link an answer is
   * good until the agent's next own heartbeat is due: a duplicate asks every few seconds.
   */
  async answers(withinMs: number): Promise<boolean> {
    const goodUntil = this.#answeredAt + (this.#ownHeartbeatMs ?? 0)
    if (this.#clock.monotonic() < goodUntil) return true
    const isAlive = await this.#heartbeat.answers(withinMs)
    if (isAlive) this.#answeredAt = this.#clock.monotonic()
    return isAlive
  }
}
