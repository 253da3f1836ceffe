import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { AgentIdentity, Duplicate } from '../endpoints/endpoint.ts'
import { ServiceError } from '../records/service-error.ts'
import type { SessionTable } from './session-table.ts'

/** Minimum time between two notices of a duplicate, because its process retries every few seconds. */
const NOTICE_STEP_MS = 600_000

/** Last duplicate: another process with the identity of a session's device. */
export class DuplicateSessions {
  readonly #clock: Clock
  #last: Duplicate | undefined
  /** Monotonic. */
  #toldAt = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get last(): Duplicate | undefined {
    return this.#last
  }

  /** Records a duplicate. Returns whether to report it to the agent and the log. */
  note(ip: string): boolean {
    const now = this.#clock.monotonic()
    const isNews = now - this.#toldAt >= NOTICE_STEP_MS || this.#last?.ip !== ip
    this.#last = { seenAt: this.#clock.now(), ip }
    if (isNews) this.#toldAt = now
    return isNews
  }
}

/** The older session of a device must answer within this time; four round trips on a slow link. */
const ANSWER_MS = 2_000

/**
 * Ensures that only one process of a device is connected. A session of another process stays if it answers a
 * heartbeat; otherwise it is dead and ends. Throws ServiceError 830 if one stays: the data directory of the
 * device was copied.
 */
export async function settleRivals(
  identity: AgentIdentity,
  sessions: Pick<SessionTable, 'rivalOf'>,
  log: Logger,
): Promise<void> {
  for (;;) {
    const rival = sessions.rivalOf(identity)
    if (!rival) return
    if (!(await rival.answers(Math.max(ANSWER_MS, 4 * (rival.latencyMs ?? 0))))) {
      const reason = 'another process of the device connected, and this session does not answer'
      rival.end(reason, 'duplicate')
      continue
    }
    const { deviceId, remoteAddress } = identity
    const ip = ipOf(rival.identity.remoteAddress)
    const isNews = rival.noteDuplicate(ipOf(remoteAddress))
    log[isNews ? 'warn' : 'debug'](
      { device: deviceId, session: rival.id, remote: rival.identity.remoteAddress, remoteAddress },
      'the device is already connected: the new process is refused',
    )
    throw new ServiceError(
      830,
      `The device ${deviceId} is already connected from ${ip}, by another process with the same data directory or a copy.`,
    )
  }
}

/**
 * Waits until a session may replace a session of another process that reports the same device and no
 * instance. That is allowed once per second and device; otherwise two such processes would end each other
 * without a pause. Returns the address of the other process if there was a conflict.
 */
export async function awaitTurn(
  identity: AgentIdentity,
  {
    sessions,
    clock,
    signal,
  }: {
    readonly sessions: Pick<SessionTable, 'replacedBy' | 'takeTurn'>
    readonly clock: Clock
    readonly signal: AbortSignal
  },
): Promise<string | undefined> {
  let isFight = false
  for (;;) {
    const other = sessions.replacedBy(identity)
    if (!other) return undefined
    const waitMs = sessions.takeTurn(identity)
    if (waitMs === 0) return isFight ? ipOf(other.identity.remoteAddress) : undefined
    isFight = true
    await clock.sleep(waitMs, signal).catch(() => {})
    if (signal.aborted) throw new ServiceError(803, 'The session is over.')
  }
}

/** Without the port. */
export function ipOf(address: string): string {
  return address.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
}
