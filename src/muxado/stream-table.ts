import { MuxadoError } from './error-code.ts'
import type { SessionStream } from './session-stream.ts'

export interface StreamTableOptions {
  readonly role: 'server' | 'client'
  readonly openStreams: number
  readonly streams: number
  readonly lastStreamId: number
}

/** The living streams of a session: their ids, their slots and who waits for one. */
export class StreamTable {
  readonly #streams = new Map<number, SessionStream>()
  readonly #waiters: (() => void)[] = []
  readonly #options: StreamTableOptions
  #nextId: number
  #lastPeerId = 0

  constructor(options: StreamTableOptions) {
    this.#options = options
    // A client opens odd ids, a server even ones; stream 0 is the session itself.
    this.#nextId = options.role === 'client' ? 1 : 2
  }

  /** 0 before the peer opened a stream. */
  get lastPeerId(): number {
    return this.#lastPeerId
  }

  get freeSlots(): number {
    return this.isExhausted ? 0 : Math.max(0, this.#options.openStreams - this.#streams.size)
  }

  /** No id is left for a stream of ours. */
  get isExhausted(): boolean {
    return this.#nextId > this.#options.lastStreamId
  }

  find(id: number): SessionStream | undefined {
    return this.#streams.get(id)
  }

  /** The id of the next stream of ours; check `freeSlots` first. */
  takeId(): number {
    const id = this.#nextId
    this.#nextId += 2
    return id
  }

  /**
   * Notes the id of a new stream of the peer: false when no slot is left for it. Throws MuxadoError
   * 'protocol-violation' when it is not the peer's to open, or is not above all before it.
   */
  admit(id: number): boolean {
    if (id % 2 === this.#nextId % 2 || id <= this.#lastPeerId) {
      throw new MuxadoError('protocol-violation', `SYN on stream ${id}`)
    }
    this.#lastPeerId = id
    return this.#streams.size < this.#options.streams
  }

  /** True when a stream of that id is open or was. */
  knows(id: number): boolean {
    return id % 2 === this.#nextId % 2 ? id < this.#nextId : id <= this.#lastPeerId
  }

  add(stream: SessionStream): void {
    this.#streams.set(stream.id, stream)
  }

  remove(stream: SessionStream): void {
    this.#streams.delete(stream.id)
  }

  all(): SessionStream[] {
    return [...this.#streams.values()]
  }

  whenFree(callback: () => void): void {
    this.#waiters.push(callback)
    this.offerSlots()
  }

  /** Calls who waits, as long as a slot is free: one that does not take it leaves it to the next. */
  offerSlots(): void {
    while (this.freeSlots > 0) {
      const callback = this.#waiters.shift()
      if (callback === undefined) return
      callback()
    }
  }
}
