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

const MOST_ENDPOINTS = 100

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
    if (webhookStore.ids().length >= MOST_ENDPOINTS) {
      throw new ServiceError(835, `There are ${MOST_ENDPOINTS} webhook endpoints: delete some.`)
    }
    const endpoint: WebhookEndpoint = {
      ...settings,
      id: ids.next('wh'),
      secret: createWebhookSecret(),
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
