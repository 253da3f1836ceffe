import type { IdSource } from '../records/resource-id.ts'
import type { PageRequest } from '../records/resource-table.ts'
import { ServiceError } from '../records/service-error.ts'
import type { WebhookEndpoint } from '../records/webhook-store.ts'
import { createWebhookSecret } from './webhook-message.ts'
import {
  type Attempt,
  type SendingStatus,
  WebhookSender,
  type WebhookSenderDeps,
} from './webhook-sender.ts'

/** Of the gateway's owner, and of each bot user: one account leaves the others theirs. */
const MOST_ENDPOINTS = 100
const MOST_OF_AN_ACCOUNT = 10
/** That sign beside the newest. */
const MOST_OLD_SECRETS = 2

export interface WebhooksDeps extends WebhookSenderDeps {
  readonly ids: IdSource
}

/** What somebody asks for; the rest is made. */
export type WebhookSettings = Pick<
  WebhookEndpoint,
  'ownerId' | 'url' | 'description' | 'eventTypes'
>

/** All that want to be told of events, each at its own pace. */
export class Webhooks {
  readonly #deps: WebhooksDeps
  readonly #senders = new Map<string, WebhookSender>()
  #unfollow: (() => void) | undefined
  #isReleased = false

  constructor(deps: WebhooksDeps) {
    this.#deps = deps
  }

  start(): void {
    const { webhookStore, events } = this.#deps
    this.#isReleased = false
    for (const id of webhookStore.ids()) {
      const endpoint = webhookStore.get(id)
      if (endpoint) this.#follow(endpoint)
    }
    this.#unfollow ??= events.onAppend(() => {
      for (const sender of this.#senders.values()) sender.wake()
    })
  }

  /** Sends no more: another process goes on. */
  async release(): Promise<void> {
    this.#isReleased = true
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

  /** It gets what happens from now on. Throws ServiceError 834 or 835. */
  create(settings: WebhookSettings): WebhookEndpoint {
    const { webhookStore, events, ids, clock } = this.#deps
    checkUrl(settings.url)
    const most = settings.ownerId === null ? MOST_ENDPOINTS : MOST_OF_AN_ACCOUNT
    if (webhookStore.countOf(settings.ownerId) >= most) {
      throw new ServiceError(835, `The account has ${most} webhook endpoints: delete some.`)
    }
    const endpoint: WebhookEndpoint = {
      ...settings,
      id: ids.next('wh'),
      secret: createWebhookSecret(),
      oldSecrets: [],
      isActive: true,
      delivered: events.newest,
      missed: 0,
      createdAt: clock.now(),
    }
    webhookStore.insert(endpoint)
    this.#follow(endpoint)
    return endpoint
  }

  /** Throws ServiceError 834. */
  update(endpoint: WebhookEndpoint, change: Partial<WebhookEndpoint>): WebhookEndpoint {
    const { webhookStore } = this.#deps
    const updated = { ...(webhookStore.get(endpoint.id) ?? endpoint), ...change }
    checkUrl(updated.url)
    webhookStore.replace(updated)
    this.#senders.get(endpoint.id)?.wake({ isChanged: true })
    return updated
  }

  /** A new secret; the one from before signs beside it for so long, so that receivers have time to change. */
  rotateSecret(endpoint: WebhookEndpoint, overlapMs: number): WebhookEndpoint {
    const { webhookStore, clock } = this.#deps
    const now = clock.now()
    const { secret, oldSecrets } = webhookStore.get(endpoint.id) ?? endpoint
    const ends = now + overlapMs
    const old = [{ secret, until: ends }, ...oldSecrets]
      .map(({ secret, until }) => ({ secret, until: Math.min(until, ends) }))
      .filter(({ until }) => until > now)
      .slice(0, MOST_OLD_SECRETS)
    return this.update(endpoint, { secret: createWebhookSecret(), oldSecrets: old })
  }

  delete({ id }: WebhookEndpoint): void {
    this.#deps.webhookStore.delete(id)
    this.forget(id)
  }

  /** Its row is gone, maybe with its account. */
  forget(id: string): void {
    void this.#senders.get(id)?.stop()
    this.#senders.delete(id)
  }

  /** Sends again what came after an event. */
  replay({ id }: WebhookEndpoint, sequence: number): void {
    this.#senders.get(id)?.replay(sequence)
  }

  async test({ id }: WebhookEndpoint): Promise<Attempt | undefined> {
    return this.#senders.get(id)?.test()
  }

  #follow(endpoint: WebhookEndpoint): void {
    if (this.#isReleased || this.#senders.has(endpoint.id)) return
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

/** Whether it may be dialled is asked when it is. Throws ServiceError 834. */
function checkUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isHttp = url?.protocol === 'https:' || url?.protocol === 'http:'
  if (url && isHttp && url.username === '' && url.password === '' && url.hash === '') return
  throw new ServiceError(
    834,
    'The field url has to be an http or https URL without a user, a password and a part behind #.',
  )
}
