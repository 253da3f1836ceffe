import type { StreamSlots } from './stream-slots.ts'

export interface StreamPoolOptions {
  /** One per agent session: `new StreamSlots({ session })`. */
  readonly slots: StreamSlots
  /** What a proxy stream of this endpoint starts with, after its type. */
  readonly proxyHeader: (clientAddr: string) => Buffer
}

/** The proxy streams of one endpoint: idle ones are taken again, newest first. */
export class StreamPool {
  readonly #slots: StreamSlots
  readonly #proxyHeader: (clientAddr: string) => Buffer

  constructor({ slots, proxyHeader }: StreamPoolOptions) {
    this.#slots = slots
    this.#proxyHeader = proxyHeader
  }

  /** Retires idle streams and refuses who waits; exchanges under way go on. */
  close(): void {}
}
