const NOTHING = Buffer.alloc(0)
const FIRST_ROOM_BYTES = 1_024

/** Appends bytes. The capacity doubles, so that single bytes do not each cost a copy. */
export class GrowingBuffer {
  #room = NOTHING
  #length = 0

  get length(): number {
    return this.#length
  }

  /** The underlying buffer; bytes after `length` are undefined. */
  get bytes(): Buffer {
    return this.#room
  }

  append(chunk: Buffer, from = 0, until = chunk.length): void {
    const length = this.#length + until - from
    if (length > this.#room.length) {
      const roomier = Buffer.allocUnsafe(Math.max(FIRST_ROOM_BYTES, length, this.#room.length * 2))
      this.#room.copy(roomier, 0, 0, this.#length)
      this.#room = roomier
    }
    chunk.copy(this.#room, this.#length, from, until)
    this.#length = length
  }

  /** Returns the bytes and clears the buffer. */
  take(): Buffer {
    const bytes = this.#room.subarray(0, this.#length)
    this.clear()
    return bytes
  }

  clear(): void {
    this.#room = NOTHING
    this.#length = 0
  }
}
