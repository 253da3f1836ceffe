import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { AgentCommand, AgentIdentity } from '../endpoints/endpoint.ts'
import { ServiceError } from '../records/service-error.ts'
import type { StreamSlots } from '../streams/stream-slots.ts'
import { untilIdle } from '../streams/stream-slots.ts'
import { commandError, StreamType } from './control-message.ts'
import type { TableEntry } from './session-table.ts'

/** Maximum wait for exchanges under way since the end was requested, whatever the agent asks for. */
const MAX_ALLOWED_MS = 60_000

/** The requested end, and its condition. */
interface Wanted {
  readonly isIdle: () => boolean
  readonly end: () => void
}

/** Ends something as soon as a session has nothing under way, or after a time in any case. */
export class IdleEnd {
  readonly #slots: StreamSlots
  readonly #clock: Clock
  #waiting = new AbortController()
  #wanted: Wanted | undefined
  /** The agent may extend the time until then, monotonic. Undefined once it has. */
  #allowedUntil: number | undefined

  constructor(options: { readonly slots: StreamSlots; readonly clock: Clock }) {
    this.#slots = options.slots
    this.#clock = options.clock
  }

  /** Replaces an earlier request. */
  begin(wanted: Wanted, withinMs: number): void {
    this.#allowedUntil = this.#clock.monotonic() + MAX_ALLOWED_MS
    this.#wait(wanted, withinMs)
  }

  /** Gives exchanges under way a new time from now, once, if an end is requested. */
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
  /** Error codes for an agent that does not support the command, and for a failed command. */
  readonly codes: { readonly unsupported: number; readonly failed: number }
  /** Message to send. The SDK does not accept a command with missing fields. */
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

/** Sends a command to an agent. Throws a ServiceError if the agent cannot or does not obey. */
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

/** device-agent supports the Update command only for notices. It does not obey a real update. */
function refusalOf(command: AgentCommand, { instance, unsupported }: AgentIdentity): string {
  const isNoticed = command === 'update' && instance !== undefined
  return isNoticed ? 'self-update is not supported.' : unsupported[command]
}

/**
 * Idle connections of visitors stay open this long when the gateway stops, twice the `sweepMs` of the
 * ingress. A request on such a connection must still find its device here.
 */
const KEPT_OPEN_MS = 2_000

export interface Departure {
  /** Time for exchanges under way on a session that must end. */
  readonly withinMs: number
  /** Visitors on idle connections find the agent here for this long. */
  readonly keptOpenMs?: number
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Sends an agent to another process that listens on the same socket, or to another node. device-agent opens a
 * second session there and keeps this session for exchanges under way. Other agents have one session, which
 * ends as soon as it is idle.
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
      log.info(
        { err: error, session: session.id },
        'agent did not open a second session: this session ends when it is idle',
      )
    }
  }
  await clock.sleep(keptOpenMs)
  session.retire(withinMs - keptOpenMs)
}
