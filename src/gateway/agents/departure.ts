import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { AgentCommand, AgentIdentity } from '../endpoints/endpoint.ts'
import { ServiceError } from '../records/service-error.ts'
import type { StreamSlots } from '../streams/stream-slots.ts'
import { untilIdle } from '../streams/stream-slots.ts'
import { commandError, StreamType } from './control-message.ts'
import type { TableEntry } from './session-table.ts'

/** Since it was wanted: what is under way is not waited for any longer, whatever is asked for. */
const MAX_ALLOWED_MS = 60_000

/** What is to be ended, and when. */
interface Wanted {
  readonly isIdle: () => boolean
  readonly end: () => void
}

/** Ends something as soon as nothing is under way on a session, and after a time in any case. */
export class IdleEnd {
  readonly #slots: StreamSlots
  readonly #clock: Clock
  #waiting = new AbortController()
  #wanted: Wanted | undefined
  /** Until when it may be allowed more time, monotonic; undefined once it was. */
  #allowedUntil: number | undefined

  constructor(options: { readonly slots: StreamSlots; readonly clock: Clock }) {
    this.#slots = options.slots
    this.#clock = options.clock
  }

  /** In the place of what was wanted before. */
  begin(wanted: Wanted, withinMs: number): void {
    this.#allowedUntil = this.#clock.monotonic() + MAX_ALLOWED_MS
    this.#wait(wanted, withinMs)
  }

  /** What is under way gets another time from now on, once, where something is to be ended. */
  allow(withinMs: number): void {
    if (!this.#wanted || this.#allowedUntil === undefined) return
    const leftMs = Math.max(0, this.#allowedUntil - this.#clock.monotonic())
    this.#allowedUntil = undefined
    this.#wait(this.#wanted, Math.min(withinMs, leftMs))
  }

  #wait(wanted: Wanted, withinMs: number): void {
    this.#waiting.abort()
    this.#waiting = new AbortController()
    this.#wanted = wanted
    const { signal } = this.#waiting
    const { isIdle, end } = wanted
    const waited = untilIdle({ slots: this.#slots, clock: this.#clock, isIdle, withinMs, signal })
    void waited.then(() => {
      if (!signal.aborted) end()
    })
  }

  stop(): void {
    this.#waiting.abort()
    this.#wanted = undefined
  }
}

interface CommandParts {
  /** For an agent that does not know the command, and for one that failed to obey it. */
  readonly codes: { readonly unsupported: number; readonly failed: number }
  /** What is sent; the SDK does not read a command that lacks a field. */
  readonly message: object
}

const COMMANDS: Readonly<Record<AgentCommand, CommandParts>> = {
  restart: { codes: { unsupported: 804, failed: 808 }, message: {} },
  stop: { codes: { unsupported: 805, failed: 807 }, message: {} },
  update: {
    codes: { unsupported: 806, failed: 809 },
    // The newest version with the same major number.
    message: { Version: '', PermitMajorVersion: false },
  },
}

/** Tells an agent to do something. Throws a ServiceError when it cannot or does not obey. */
export async function commandAgent(
  command: AgentCommand,
  identity: AgentIdentity,
  call: (type: number, message: object) => Promise<unknown>,
): Promise<void> {
  const { codes, message } = COMMANDS[command]
  const reason = refusalOf(command, identity)
  if (reason) throw new ServiceError(codes.unsupported, `The agent cannot ${command}: ${reason}`)
  const error = commandError(await call(StreamType[command], message))
  if (error) throw new ServiceError(codes.failed, `The agent failed to ${command}: ${error}`)
}

/** An agent of ours listens to updates for the sake of notices; what is really one it does not obey. */
function refusalOf(command: AgentCommand, { instance, unsupported }: AgentIdentity): string {
  const isNoticed = command === 'update' && instance !== undefined
  return isNoticed ? 'self-update is not supported.' : unsupported[command]
}

/**
 * What a visitor's idle connection has left when the gateway stops, twice the `sweepMs` of the ingress:
 * a request that comes on it has to find its device here.
 */
const KEPT_OPEN_MS = 2_000

export interface Departure {
  /** For what is under way on a session that has to end. */
  readonly withinMs: number
  /** How long visitors who come on idle connections find it here. */
  readonly keptOpenMs?: number
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Sends an agent to another process that listens on the same socket, or to another node. One of ours brings a second
 * session up there and keeps this one for what is under way; any other has one session, which ends as
 * soon as nothing is.
 */
export async function sendAway(
  session: TableEntry,
  { withinMs, keptOpenMs = KEPT_OPEN_MS, clock, log }: Departure,
): Promise<void> {
  if (session.identity.instance !== undefined) {
    try {
      await session.command('restart')
      return
    } catch (error) {
      log.info({ err: error, session: session.id }, 'the agent does not open a second session')
    }
  }
  await clock.sleep(keptOpenMs)
  session.retire(withinMs - keptOpenMs)
}
