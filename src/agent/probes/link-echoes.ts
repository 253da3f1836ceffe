import type { Clock } from '../../base/clock.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import type { Connector, ConnectRequest, Session } from '../connector.ts'

/** What comes back on one session. */
interface Echo {
  /** When the latest heartbeat was sent that was answered, monotonic. */
  sentAt: number
  /** Four round trips, as far as is known. */
  slackMs: number
  readonly heard: AutoResetEvent
}

/** Latencies are told in whole milliseconds. */
const ROUNDING_MS = 1

/**
 * Whether heartbeats come back on a link from a moment on: what goes one way only proves nothing, and
 * neither does an echo of what was sent before. Resolves false at the deadline and when aborted.
 */
export interface LinkWatch {
  /** What a slow link may take in addition, in ms: some round trips. */
  readonly slackMs?: number
  answers(signal: AbortSignal): Promise<boolean>
}

export interface LinkEchoesOptions {
  readonly connector: Connector
  readonly clock: Clock
  /** How long an echo may take: the pause between two heartbeats and a slow way there and back. */
  readonly withinMs: number
  /** What the service tells on any of the sessions beside commands. */
  readonly onNotice?: (text: string) => void
}

/** A connector that remembers of each of its sessions when it answered. */
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

  /** Watches from now on. One watch at a time may wait for an answer. */
  watch(session: Session | undefined): LinkWatch {
    const { clock, withinMs } = this.#options
    const beganAt = clock.monotonic()
    const echo = session && this.#echoes.get(session)
    const slackMs = echo?.slackMs ?? 0
    return {
      slackMs,
      answers: async (signal) => {
        if (!echo) return false
        const wake = () => echo.heard.set()
        signal.addEventListener('abort', wake, { once: true })
        try {
          while (echo.sentAt <= beganAt) {
            const leftMs = beganAt + withinMs + slackMs - clock.monotonic()
            if (leftMs <= 0 || signal.aborted) return false
            await echo.heard.wait(clock, leftMs)
          }
          return true
        } finally {
          signal.removeEventListener('abort', wake)
        }
      },
    }
  }
}
