import { neverDialledHost } from '../../../base/net/network.ts'
import type { AccountQuotas } from '../../records/account-quotas.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import type { ItemChange, PageRequest } from '../../records/resource-table.ts'
import { present, ServiceError } from '../../records/service-error.ts'
import {
  type Attempt,
  createWebhookSecret,
  type SendingStatus,
  WebhookSender,
  type WebhookSenderDeps,
} from './webhook-sender.ts'
import type { WebhookEndpoint } from './webhook-store.ts'

/** Limit for the gateway's owner; each bot user has a quota. */
const MAX_ENDPOINTS = 100
/** Maximum number of old secrets that sign in addition to the newest. */
const MAX_OLD_SECRETS = 2

export interface WebhooksDeps extends WebhookSenderDeps {
  readonly botUsers: Pick<BotUserStore, 'checkOwner'>
  readonly quotas: AccountQuotas
  readonly ids: IdSource
}

/** Fields of a request for a webhook endpoint; the rest is generated. */
export type WebhookSettings = Pick<
  WebhookEndpoint,
  'ownerId' | 'url' | 'description' | 'eventTypes'
>

/** All webhook endpoints, each delivered at its own pace. */
export class Webhooks {
  readonly #deps: WebhooksDeps
  readonly #senders = new Map<string, WebhookSender>()
  #unfollow: (() => void) | undefined
  /** False before the start, and while another process sends. */
  #isSending = false

  constructor(deps: WebhooksDeps) {
    this.#deps = deps
    deps.webhookStore.onChange((change) => this.#followChange(change))
  }

  start(): void {
    const { webhookStore, events } = this.#deps
    this.#isSending = true
    for (const id of webhookStore.ids()) {
      const endpoint = webhookStore.get(id)
      if (endpoint) this.#follow(endpoint)
    }
    this.#unfollow ??= events.onAppend(() => {
      for (const sender of this.#senders.values()) sender.wake()
    })
  }

  /** Stops sending; another process continues. */
  async release(): Promise<void> {
    this.#isSending = false
    await this.#end()
  }

  reclaim(): void {
    this.start()
  }

  async stop(): Promise<void> {
    this.#unfollow?.()
    await this.#end()
  }

  all(): WebhookEndpoint[] {
    const { webhookStore } = this.#deps
    return webhookStore.ids().flatMap((id) => webhookStore.get(id) ?? [])
  }

  page(request: PageRequest): WebhookEndpoint[] {
    return this.#deps.webhookStore.page(request)
  }

  get(id: string): WebhookEndpoint | undefined {
    return this.#deps.webhookStore.get(id)
  }

  statusOf({ id }: WebhookEndpoint): SendingStatus | undefined {
    return this.#senders.get(id)?.status
  }

  /** Creates an endpoint, which gets events from now on. Throws ServiceError 634, 834 or 835. */
  create(settings: WebhookSettings): Promise<WebhookEndpoint> {
    const { database, webhookStore, botUsers, quotas, events, ids, clock } = this.#deps
    const { ownerId } = settings
    const made = {
      ...settings,
      id: ids.next('wh'),
      secret: createWebhookSecret(),
      oldSecrets: [],
      isActive: true,
      missed: 0,
      createdAt: clock.now(),
    }
    const keep = () => {
      botUsers.checkOwner(ownerId)
      checkUrl(settings.url)
      if (ownerId === null && webhookStore.countOf(null) >= MAX_ENDPOINTS) {
        throw new ServiceError(
          835,
          `The account is at its limit of ${MAX_ENDPOINTS} webhook endpoints. Delete some.`,
        )
      }
      quotas.check(ownerId, 'webhooks')
      const endpoint: WebhookEndpoint = { ...made, delivered: events.newest }
      webhookStore.insert(endpoint)
      return endpoint
    }
    return database.change(keep, { concludes: made.id })
  }

  /** Throws ServiceError 834. */
  update({ id }: WebhookEndpoint, change: Partial<WebhookEndpoint>): Promise<WebhookEndpoint> {
    return this.#change(id, () => change)
  }

  /**
   * Creates a new secret. The previous secret also signs for `overlapMs`, so that receivers have time to
   * change.
   */
  rotateSecret({ id }: WebhookEndpoint, overlapMs: number): Promise<WebhookEndpoint> {
    const now = this.#deps.clock.now()
    const ends = now + overlapMs
    const fresh = createWebhookSecret()
    return this.#change(id, ({ secret, oldSecrets }) => {
      const old = [{ secret, until: ends }, ...oldSecrets]
        .map(({ secret, until }) => ({ secret, until: Math.min(until, ends) }))
        .filter(({ until }) => until > now)
        .slice(0, MAX_OLD_SECRETS)
      return { secret: fresh, oldSecrets: old }
    })
  }

  async delete({ id }: WebhookEndpoint): Promise<void> {
    const { database, webhookStore } = this.#deps
    const remove = () => webhookStore.delete(id)
    await database.change(remove, { concludes: id, mayUseReserve: true })
  }

  /** Sends the events after `sequence` again. */
  async replay({ id }: WebhookEndpoint, sequence: number): Promise<void> {
    const { database, webhookStore } = this.#deps
    const sender = this.#senders.get(id)
    if (sender) await sender.replay(sequence)
    // Another gateway sends, and detects the replay by the changed row.
    else {
      const note = () => webhookStore.noteDelivered(id, sequence, 0)
      await database.change(note, { concludes: id })
    }
  }

  /** Sends a test message from this gateway, even if another gateway sends the events. */
  test(endpoint: WebhookEndpoint): Promise<Attempt> {
    const sender = this.#senders.get(endpoint.id) ?? new WebhookSender(endpoint, this.#deps)
    return sender.test()
  }

  #change(
    id: string,
    changeOf: (endpoint: WebhookEndpoint) => Partial<WebhookEndpoint>,
  ): Promise<WebhookEndpoint> {
    const { database, webhookStore } = this.#deps
    const keep = () => {
      const endpoint = present(webhookStore.get(id))
      const updated = { ...endpoint, ...changeOf(endpoint) }
      checkUrl(updated.url)
      webhookStore.replace(updated)
      return updated
    }
    return database.change(keep, { concludes: id })
  }

  /**
   * Follows changes of any origin, including the deletion of its account. Its own sender or a replay changes
   * the position.
   */
  #followChange({ before, after }: ItemChange<WebhookEndpoint>): void {
    if (!after) {
      if (before) this.#forget(before.id)
    } else if (!before) {
      this.#follow(after)
    } else if (before.delivered === after.delivered && before.missed === after.missed) {
      this.#senders.get(after.id)?.wake({ isChanged: true })
    } else this.#senders.get(after.id)?.followReplay(after.delivered)
  }

  #forget(id: string): void {
    void this.#senders.get(id)?.stop()
    this.#senders.delete(id)
  }

  #follow(endpoint: WebhookEndpoint): void {
    if (!this.#isSending || this.#senders.has(endpoint.id)) return
    const sender = new WebhookSender(endpoint, this.#deps)
    this.#senders.set(endpoint.id, sender)
    sender.start()
  }

  async #end(): Promise<void> {
    const senders = [...this.#senders.values()]
    this.#senders.clear()
    await Promise.all(senders.map((sender) => sender.stop()))
  }
}

/** Whether a name may be reached is checked when a request is sent. Throws ServiceError 834. */
function checkUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isHttp = url?.protocol === 'https:' || url?.protocol === 'http:'
  if (!url || !isHttp || url.username !== '' || url.password !== '' || url.hash !== '') {
    throw new ServiceError(
      834,
      'The field url must be an http or https URL without user, password or fragment.',
    )
  }
  const never = neverDialledHost(url)
  if (!never) return
  const sentence = `The field url is not usable: connections to ${never} are always blocked.`
  throw new ServiceError(834, sentence)
}
