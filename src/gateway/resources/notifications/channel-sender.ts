import { createHash } from 'node:crypto'
import { Backoff } from '../../../base/backoff.ts'
import type { Clock } from '../../../base/clock.ts'
import { AutoResetEvent } from '../../../base/deferred.ts'
import type { Logger } from '../../../base/logger.ts'
import type { Scheduler } from '../../../base/scheduler.ts'
import type { Database } from '../../../store/database.ts'
import type { GatewayEvent } from '../../records/event-store.ts'
import type { Attempt } from './attempt.ts'
import type {
  ChannelState,
  ChannelStateStore,
  NotificationChannel,
  NotificationChannelStore,
} from './channel-store.ts'
import type { Delivery } from './delivery.ts'
import type { EventBatches } from './event-batches.ts'
import { compose, type Message } from './message.ts'
import { afterEvent, afterTold, DEVICE_STEP_MS, isWanted, type Notice, noticeId } from './notice.ts'
import type { NoticeStore } from './notice-store.ts'
import { isQuiet } from './quiet-times.ts'

/** After the first notice is due, others join its message for this time. */
export const COLLECT_MS = 30_000
/** Delays after failures. Attempts continue, and later notices join the message. */
const RETRY = { baseMs: 5_000, capMs: 600_000, jitter: 0.5 }
/** Delay while the database cannot be written. */
const UNSAVED_MS = 10_000
/** Maximum wait while notices wait: quiet times end, and the wall clock may be corrected. */
const MAX_WAIT_MS = 60_000
/** The position is saved at this interval if the events had no news for the channel. */
const SAVE_MS = 60_000
/** Maximum number of notices of a channel. */
const MAX_NOTICES = 20_000
/** Maximum number of notices in one message. Others follow in the next message. */
const MAX_IN_MESSAGE = 2_000
/** A device that is offline for longer is forgotten. Its return is then not reported. */
const FORGET_MS = 30 * 86_400_000

export interface ChannelSenderDeps {
  readonly database: Pick<Database, 'change'>
  readonly channelStore: NotificationChannelStore
  readonly channelStates: ChannelStateStore
  readonly notices: NoticeStore
  readonly batches: EventBatches
  readonly delivery: Delivery
  /** Gives way to other work between batches of events. */
  readonly scheduler: Pick<Scheduler, 'yield'>
  readonly clock: Clock
  readonly log: Logger
}

/** Contents of one message. */
interface Composed {
  readonly due: readonly Notice[]
  readonly leftOut: number
  readonly message: Message
  readonly id: string
  /** Wall clock time. */
  readonly at: number
}

/**
 * Turns the events of the log into messages for one channel.
 *
 * INVARIANTS
 * - Events become notices in the transaction that moves the position: no event is lost or counted twice.
 * - A notice is marked as sent after the receiver accepted its message. After a kill in between, the message
 *   is sent again with the same id.
 * - If the mark cannot be saved, nothing else is sent before it is.
 * - If the receiver may have accepted a message, the same message is sent again before any other.
 */
export class ChannelSender {
  readonly #id: string
  readonly #deps: ChannelSenderDeps
  readonly #backoff = new Backoff(RETRY)
  readonly #wakeUp = new AutoResetEvent()
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined
  /** Position in the log; ahead of the saved position by events that the channel does not want. */
  #position = 0
  /** The saved position is at most `SAVE_MS` older than this time (monotonic). */
  #savedAt = Number.NEGATIVE_INFINITY
  /** No attempt before this time (monotonic), after a failure. */
  #notBefore = 0
  /** A message that the receiver may have accepted. */
  #unclear: Composed | undefined
  /** A result that is not saved yet. */
  #unsaved: (() => void) | undefined

  constructor(id: string, deps: ChannelSenderDeps) {
    this.#id = id
    this.#deps = deps
  }

  /** Sequence of the last event that this sender read. */
  get position(): number {
    return this.#position
  }

  start(): void {
    this.#running ??= this.#run()
  }

  /** New events arrived, or the channel was changed (`isChanged`), which also ends the wait after a failure. */
  wake({ isChanged = false } = {}): void {
    if (isChanged) {
      this.#notBefore = 0
      this.#savedAt = Number.NEGATIVE_INFINITY
      this.#backoff.reset()
    }
    this.#wakeUp.set()
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the gateway is stopping'))
    this.#wakeUp.set()
    await this.#running
    try {
      this.#savedAt = Number.NEGATIVE_INFINITY
      await this.#savePosition()
    } catch (error) {
      // The next sender reads these events again.
      this.#deps.log.debug({ err: error, channel: this.#id }, 'the position was not saved')
    }
  }

  async #run(): Promise<void> {
    const { clock, channelStore, log } = this.#deps
    while (!this.#stopping.signal.aborted) {
      try {
        const channel = channelStore.get(this.#id)
        // Its account was deleted.
        if (!channel) return
        await this.#save()
        await this.#readEvents(channel)
        const saveMs = await this.#savePosition()
        const dueMs = channel.isActive ? await this.#sendDue(channel) : undefined
        if (dueMs === 0) continue
        const waitMs = Math.min(dueMs ?? Number.POSITIVE_INFINITY, saveMs)
        await this.#wakeUp.wait(clock, Number.isFinite(waitMs) ? waitMs : undefined)
      } catch (error) {
        if (this.#stopping.signal.aborted) return
        log.warn({ err: error, channel: this.#id }, 'notifications paused by an error, will retry')
        await this.#wakeUp.wait(clock, UNSAVED_MS)
      }
    }
  }

  get #state(): ChannelState {
    const state = this.#deps.channelStates.get(this.#id)
    if (!state) throw new Error('the notification channel was deleted')
    return state
  }

  /** Turns new events into notices, in batches. */
  async #readEvents(channel: NotificationChannel): Promise<void> {
    const { database, batches, scheduler, channelStates, log } = this.#deps
    for (;;) {
      const { position } = this.#state
      const from = Math.max(position, this.#position)
      const batch = batches.after(from)
      const last = batch.at(-1)
      if (!last || this.#stopping.signal.aborted) return
      const wanted = batch.filter((event) => isWanted(event, channel))
      const lost = this.#lostBefore(channel, from, batch)
      const keep = () => {
        const state = this.#state
        // Another gateway was sending until now, and has read them.
        if (state.position > from) return false
        const leftOut = state.leftOut + lost + this.#keep(channel, wanted)
        channelStates.replace({ ...state, position: last.sequence, leftOut })
        return true
      }
      if (lost > 0) log.error({ channel: this.#id, lost }, 'events were dropped for notifications')
      const hasNews = wanted.length > 0 || lost > 0
      const isRead = !hasNews || (await database.change(keep, { withoutBackup: true }))
      if (isRead) this.#position = last.sequence
      await scheduler.yield(this)
    }
  }

  /** Saves the position. Returns the milliseconds until it has to be called again. */
  async #savePosition(): Promise<number> {
    const { database, channelStates, clock } = this.#deps
    const position = this.#position
    if (this.#state.position >= position) return Number.POSITIVE_INFINITY
    const waitMs = this.#savedAt + SAVE_MS - clock.monotonic()
    if (waitMs > 0) return waitMs
    const keep = () => {
      const state = channelStates.get(this.#id)
      if (state && state.position < position) channelStates.replace({ ...state, position })
    }
    await database.change(keep, { withoutBackup: true })
    this.#savedAt = clock.monotonic()
    return Number.POSITIVE_INFINITY
  }

  /** Number of the channel's events that left the log before they were read. */
  #lostBefore(
    { ownerId }: NotificationChannel,
    from: number,
    [first]: readonly GatewayEvent[],
  ): number {
    const end = (first?.sequence ?? 0) - 1
    if (end <= from) return 0
    const last = ownerId === null ? end : Math.min(end, this.#deps.batches.newestRemovedOf(ownerId))
    return Math.max(0, last - from)
  }

  /** Changes the notices by events. Returns the number of events without a place. */
  #keep(channel: NotificationChannel, wanted: readonly GatewayEvent[]): number {
    const { notices, clock } = this.#deps
    const now = clock.now()
    let room = MAX_NOTICES - notices.count(channel.id)
    let leftOut = 0
    for (const event of wanted) {
      const before = notices.get(noticeId(channel.id, event))
      const after = afterEvent(before, event, { channel, now })
      if (before || !after || room > 0) {
        room -= Number(!before && after !== undefined)
        this.#put(before, after)
      } else leftOut += 1
    }
    return leftOut
  }

  #put(before: Notice | undefined, after: Notice | undefined): void {
    const { notices } = this.#deps
    if (after && before) notices.replace(after)
    else if (after) notices.insert(after)
    else if (before) notices.delete(before.id)
  }

  /** Sends a message if it is time. Returns the milliseconds to wait; undefined: until an event. */
  async #sendDue(channel: NotificationChannel): Promise<number | undefined> {
    const { notices, clock } = this.#deps
    const firstDue = notices.firstDue(this.#id)
    if (firstDue === undefined) {
      this.#unclear = undefined
      return undefined
    }
    const now = clock.now()
    if (firstDue > now + Math.max(channel.offlineMs, DEVICE_STEP_MS)) {
      await this.#correctTimes(now + channel.offlineMs)
      return 0
    }
    const waitMs = Math.max(firstDue + COLLECT_MS - now, this.#notBefore - clock.monotonic())
    if (waitMs > 0) return Math.min(waitMs, MAX_WAIT_MS)
    if (isQuiet(channel.quietTimes, channel.timeZone, now)) return MAX_WAIT_MS
    await this.#send(channel, this.#unclear ?? this.#compose(channel, now))
    return 0
  }

  /** The clock was ahead when these times were set. */
  async #correctTimes(dueAt: number): Promise<void> {
    const { database, notices } = this.#deps
    const correct = () => notices.bringForward(this.#id, dueAt)
    await database.change(correct, { withoutBackup: true })
  }

  #compose({ timeZone }: NotificationChannel, at: number): Composed {
    const due = this.#deps.notices.due(this.#id, at, MAX_IN_MESSAGE)
    const { leftOut } = this.#state
    const message = compose(due, { timeZone, leftOut })
    return { due, leftOut, message, id: messageId(this.#id, due), at }
  }

  async #send(channel: NotificationChannel, composed: Composed): Promise<void> {
    const { delivery, clock, log } = this.#deps
    const attempt = await delivery.send(channel, composed, this.#stopping.signal)
    if (attempt.isTaken) {
      this.#backoff.reset()
      this.#unclear = undefined
      this.#unsaved = () => this.#noteSent(channel, composed, attempt)
    } else if (!this.#stopping.signal.aborted) {
      if (attempt.isUnclear) this.#unclear = composed
      const waitMs = this.#backoff.next()
      this.#notBefore = clock.monotonic() + waitMs
      const nextTryAt = clock.now() + waitMs
      log[this.#backoff.attempts === 1 ? 'warn' : 'debug'](
        { channel: this.#id, reason: attempt.text },
        'notification not sent, will retry',
      )
      this.#unsaved = () => this.#noteFailure(attempt, nextTryAt)
    }
    await this.#save()
  }

  /** Saves the last result, or throws. */
  async #save(): Promise<void> {
    const { database, channelStates } = this.#deps
    const save = this.#unsaved
    if (!save) return
    const keep = () => {
      // The channel may be deleted meanwhile.
      if (channelStates.get(this.#id)) save()
    }
    await database.change(keep, { withoutBackup: true })
    this.#unsaved = undefined
  }

  #noteSent(channel: NotificationChannel, { due, leftOut, at }: Composed, attempt: Attempt): void {
    const { notices, channelStates } = this.#deps
    for (const notice of due) {
      // Read again: it may be deleted, or changed by events or by another gateway.
      const stored = notices.get(notice.id)
      if (stored) this.#put(stored, afterTold({ stored, told: notice }, { channel, at }))
    }
    notices.forget(this.#id, { doneBefore: at - DEVICE_STEP_MS, allBefore: at - FORGET_MS })
    const state = this.#state
    channelStates.replace({
      ...state,
      leftOut: Math.max(0, state.leftOut - leftOut),
      lastSentAt: this.#deps.clock.now(),
      failures: 0,
      problem: attempt.text === 'Delivered.' ? null : attempt.text,
      nextTryAt: null,
    })
  }

  #noteFailure(attempt: Attempt, nextTryAt: number): void {
    const state = this.#state
    const failures = state.failures + 1
    this.#deps.channelStates.replace({ ...state, failures, problem: attempt.text, nextTryAt })
  }
}

/** Names a message by its contents, so that a repetition has the same id. */
function messageId(channelId: string, due: readonly Notice[]): string {
  const parts = due.map(({ id, dueAt }) => `${id} ${dueAt}`)
  return createHash('sha256')
    .update([channelId, ...parts].join('\n'))
    .digest('hex')
    .slice(0, 40)
}
