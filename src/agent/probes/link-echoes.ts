import type { Clock } from '../../base/clock.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import { onAbort } from '../../base/on-abort.ts'
import type { Connector, ConnectRequest, Session } from '../connector.ts'

/** Heartbeat answers of one session. */
interface Echo {
  /** Monotonic time at which the latest answered heartbeat was sent. */
  sentAt: number
  /** Four round trips, as far as known. */
  slackMs: number
  readonly heard: AutoResetEvent
}

/** Latencies are reported in whole milliseconds. */
const ROUNDING_MS = 1

/**
 * Checks whether heartbeats are answered from a given moment on. Data in one direction is no proof, and
 * neither is an answer to an earlier heartbeat. Resolves with false at the time limit and when aborted.
 */
export interface LinkWatch {
  /** Additional time for a slow link, in milliseconds: some round trips. */
  readonly slackMs?: number
  answers(signal: AbortSignal): Promise<boolean>
}

export interface LinkEchoesOptions {
  readonly connector: Connector
  readonly clock: Clock
  /** Time limit for an answer: the interval between two heartbeats plus a slow round trip. */
  readonly withinMs: number
  /** Called with messages of the service that are not commands, from any session. */
  readonly onNotice?: (text: string) => void
}

/** A connector that records when each of its sessions answered. */
export class LinkEchoes implements Connector {
  readonly #options: LinkEchoesOptions
  readonly #echoes = new WeakMap<Session, Echo>()

  constructor(options: LinkEchoesOptions) {
    this.#options = options
  }

  get sdkVersion(): string {
    return this.#options.connector.sdkVersion
  }

  async connect(request: ConnectRequest): Promise<Session> {
    const { connector, clock, onNotice } = this.#options
    const heard = new AutoResetEvent()
    const echo: Echo = { sentAt: Number.NEGATIVE_INFINITY, slackMs: 0, heard }
    const connectingAt = clock.monotonic()
    const session = await connector.connect({
      ...request,
      ...(onNotice && { onNotice }),
      onHeartbeat: (latencyMs) => {
        echo.sentAt = clock.monotonic() - latencyMs - ROUNDING_MS
        echo.slackMs = 4 * latencyMs
        echo.heard.set()
        request.onHeartbeat(latencyMs)
      },
    })
    if (echo.slackMs === 0) echo.slackMs = clock.monotonic() - connectingAt
    this.#echoes.set(session, echo)
    return session
  }

  /** Starts watching. Only one watch at a time may wait for an answer. */
  watch(session: Session | undefined): LinkWatch {
    const { clock, withinMs } = this.#options
    const beganAt = clock.monotonic()
    const echo = session && this.#echoes.get(session)
    const slackMs = echo?.slackMs ?? 0
    return {
      slackMs,
      answers: async (signal) => {
        if (!echo) return false
        const off = onAbort(signal, () => echo.heard.set())
        try {
          while (echo.sentAt <= beganAt) {
            const leftMs = beganAt + withinMs + slackMs - clock.monotonic()
            if (leftMs <= 0 || signal.aborted) return false
            await echo.heard.wait(clock, leftMs)
          }
          return true
        } finally {
          off()
        }
      },
    }
  }
}
