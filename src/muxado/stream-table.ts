import { MuxadoError } from './error-code.ts'
import type { SessionStream } from './session-stream.ts'

export interface StreamTableOptions {
  readonly role: 'server' | 'client'
  readonly openStreams: number
  readonly streams: number
  readonly lastStreamId: number
}

/** Which slot a stream takes: one of the free ones, or one that the limit of streams does not count. */
export type Slot = 'free' | 'reserved'

/** Open streams of a session: their ids, their slots and the callbacks waiting for a slot. */
export class StreamTable {
  readonly #streams = new Map<number, SessionStream>()
  /** Streams that take no slot. */
  readonly #reserved = new Set<SessionStream>()
  readonly #waiters: (() => void)[] = []
  readonly #options: StreamTableOptions
  #nextId: number
  #lastPeerId = 0

  constructor(options: StreamTableOptions) {
    this.#options = options
    // A client opens odd ids, a server even ids. Stream 0 is the session itself.
    this.#nextId = options.role === 'client' ? 1 : 2
  }

  /** 0 until the peer opens a stream. */
  get lastPeerId(): number {
    return this.#lastPeerId
  }

  /** Number of open streams. */
  get size(): number {
    return this.#streams.size
  }

  get freeSlots(): number {
    const taken = this.#streams.size - this.#reserved.size
    return this.isExhausted ? 0 : Math.max(0, this.#options.openStreams - taken)
  }

  /** Whether no stream id is left for this side. */
  get isExhausted(): boolean {
    return this.#nextId > this.#options.lastStreamId
  }

  find(id: number): SessionStream | undefined {
    return this.#streams.get(id)
  }

  /** Returns the id of this side's next stream. Check `freeSlots` first. */
  takeId(): number {
    const id = this.#nextId
    this.#nextId += 2
    return id
  }

  /**
   * Records the id of a new stream of the peer. Returns false if no slot is free. Throws MuxadoError
   * 'protocol-violation' if the id belongs to this side, or is not above all earlier ones.
   */
  admit(id: number): boolean {
    if (id % 2 === this.#nextId % 2 || id <= this.#lastPeerId) {
      throw new MuxadoError('protocol-violation', `SYN on stream ${id}`)
    }
    this.#lastPeerId = id
    return this.#streams.size < this.#options.streams
  }

  /** Whether a stream with this id is open or was open. */
  knows(id: number): boolean {
    return id % 2 === this.#nextId % 2 ? id < this.#nextId : id <= this.#lastPeerId
  }

  add(stream: SessionStream, slot: Slot = 'free'): void {
    this.#streams.set(stream.id, stream)
    if (slot === 'reserved') this.#reserved.add(stream)
  }

  remove(stream: SessionStream): void {
    this.#streams.delete(stream.id)
    this.#reserved.delete(stream)
  }

  all(): SessionStream[] {
    return [...this.#streams.values()]
  }

  whenFree(callback: () => void): void {
    this.#waiters.push(callback)
    this.offerSlots()
  }

  /** Calls waiting callbacks as long as a slot is free. A callback may leave its slot to the next. */
  offerSlots(): void {
    while (this.freeSlots > 0) {
      const callback = this.#waiters.shift()
      if (callback === undefined) return
      callback()
    }
  }
}
