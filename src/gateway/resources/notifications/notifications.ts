import { AppError } from '../../../base/app-error.ts'
import { TokenBuckets } from '../../../base/limiter.ts'
import { Scheduler } from '../../../base/scheduler.ts'
import type { AccountQuotas } from '../../records/account-quotas.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { EventStore } from '../../records/event-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import type { ItemChange, PageRequest } from '../../records/resource-table.ts'
import { present, ServiceError } from '../../records/service-error.ts'
import type { Attempt } from './attempt.ts'
import { ChannelSender, type ChannelSenderDeps } from './channel-sender.ts'
import type { ChannelState, NotificationChannel } from './channel-store.ts'
import { NO_MAIL } from './delivery.ts'
import { EventBatches } from './event-batches.ts'
import { TEST_MESSAGE } from './message.ts'

/** Limit for the gateway's owner; each bot user has a quota. */
const MAX_CHANNELS = 100
/** Test messages per account. */
const TESTS = { capacity: 5, refillPerS: 1 / 30, maxKeys: 10_000 }

export interface NotificationsDeps extends Omit<ChannelSenderDeps, 'batches' | 'scheduler'> {
  readonly events: EventStore
  readonly botUsers: Pick<BotUserStore, 'checkOwner'>
  readonly quotas: AccountQuotas
  readonly ids: IdSource
}

/** Fields of a request for a channel; the rest is generated. */
export type ChannelSettings = Omit<NotificationChannel, 'id' | 'isActive' | 'createdAt'>

/** All notification channels. One gateway of a cluster sends the messages of all channels. */
export class Notifications {
  readonly #deps: NotificationsDeps & ChannelSenderDeps
  readonly #senders = new Map<string, ChannelSender>()
  readonly #tests: TokenBuckets
  readonly #stopping = new AbortController()
  #unfollow: (() => void) | undefined
  /** False before the start, and while another process sends. */
  #isSending = false

  constructor(deps: NotificationsDeps) {
    const batches = new EventBatches(deps.events)
    this.#deps = { ...deps, batches, scheduler: new Scheduler() }
    this.#tests = new TokenBuckets({ ...TESTS, clock: deps.clock })
    deps.channelStore.onChange((change) => this.#followChange(change))
  }

  /** From now on this gateway sends. */
  reclaim(): void {
    const { channelStore, events } = this.#deps
    this.#isSending = true
    for (const { id } of channelStore.all()) this.#follow(id)
    this.#unfollow ??= events.onAppend(() => {
      for (const sender of this.#senders.values()) sender.wake()
    })
  }

  /** Stops sending; another process continues. */
  async release(): Promise<void> {
    this.#isSending = false
    const senders = [...this.#senders.values()]
    this.#senders.clear()
    await Promise.all(senders.map((sender) => sender.stop()))
  }

  async stop(): Promise<void> {
    this.#unfollow?.()
    this.#stopping.abort(new Error('the gateway is stopping'))
    await this.release()
  }

  all(): NotificationChannel[] {
    return this.#deps.channelStore.all()
  }

  page(request: PageRequest): NotificationChannel[] {
    return this.#deps.channelStore.page(request)
  }

  get(id: string): NotificationChannel | undefined {
    return this.#deps.channelStore.get(id)
  }

  stateOf({ id }: NotificationChannel): ChannelState | undefined {
    return this.#deps.channelStates.get(id)
  }

  /** Creates a channel for events from now on. Throws ServiceError 215, 835 or 18021. */
  create(settings: ChannelSettings): Promise<NotificationChannel> {
    const { database, channelStore, channelStates, botUsers, quotas, events, ids, clock } =
      this.#deps
    const { ownerId } = settings
    const channel = {
      ...settings,
      id: ids.next('nc'),
      isActive: true,
      createdAt: clock.now(),
    }
    this.#checkMail(channel)
    const keep = () => {
      botUsers.checkOwner(ownerId)
      if (ownerId === null && channelStore.countOf(null) >= MAX_CHANNELS) {
        throw new ServiceError(
          835,
          `The account is at its limit of ${MAX_CHANNELS} notification channels. Delete some.`,
        )
      }
      quotas.check(ownerId, 'notification_channels')
      channelStore.insert(channel)
      const nothing = { leftOut: 0, lastSentAt: null, failures: 0, problem: null, nextTryAt: null }
      channelStates.insert({ id: channel.id, position: events.newest, ...nothing })
      return channel
    }
    return database.change(keep, { concludes: channel.id })
  }

  /** `changeOf` runs in the transaction, and may throw to refuse the change. */
  update(
    { id }: NotificationChannel,
    changeOf: (channel: NotificationChannel) => Partial<NotificationChannel>,
  ): Promise<NotificationChannel> {
    const { database, channelStore, channelStates } = this.#deps
    const keep = () => {
      const channel = present(channelStore.get(id))
      // Events that were read keep their meaning.
      const position = this.#senders.get(id)?.position ?? 0
      const state = channelStates.get(id)
      if (state && state.position < position) channelStates.replace({ ...state, position })
      const updated = { ...channel, ...changeOf(channel) }
      channelStore.replace(updated)
      return updated
    }
    return database.change(keep, { concludes: id })
  }

  async delete({ id }: NotificationChannel): Promise<void> {
    const { database, channelStore } = this.#deps
    const remove = () => channelStore.delete(id)
    await database.change(remove, { concludes: id, mayUseReserve: true })
  }

  /** Sends a test message from this gateway, at any time. Throws AppError `too-many-requests`. */
  test(channel: NotificationChannel): Promise<Attempt> {
    const waitMs = this.#tests.tryCount(channel.ownerId ?? '')
    if (waitMs > 0) {
      const retryAfterS = Math.ceil(waitMs / 1_000)
      const text = `Too many test messages. Try again in ${retryAfterS} s.`
      throw new AppError('too-many-requests', text, { retryAfterS })
    }
    const id = `${channel.id}.test.${this.#deps.clock.now()}`
    return this.#deps.delivery.send(
      channel,
      { message: TEST_MESSAGE, id, isTest: true },
      this.#stopping.signal,
    )
  }

  #checkMail({ kind }: Pick<NotificationChannel, 'kind'>): void {
    if (kind === 'email' && !this.#deps.delivery.hasMail) throw new ServiceError(215, NO_MAIL)
  }

  /** Follows changes of any origin, including the deletion of its account. */
  #followChange({ before, after }: ItemChange<NotificationChannel>): void {
    if (!after) {
      if (before) this.#forget(before.id)
    } else if (!before) this.#follow(after.id)
    else this.#senders.get(after.id)?.wake({ isChanged: true })
  }

  #forget(id: string): void {
    void this.#senders.get(id)?.stop()
    this.#senders.delete(id)
  }

  #follow(id: string): void {
    if (!this.#isSending || this.#senders.has(id)) return
    const sender = new ChannelSender(id, this.#deps)
    this.#senders.set(id, sender)
    sender.start()
  }
}
