/**
 * How the admitted requests of one bucket are remembered. All buckets of a limiter share typed
 * arrays; a window works on the words of one bucket, which start at `at` and are zero at first.
 *
 * Both windows keep the promise of the rate limit: in any window of `windowMs`, closed at one end,
 * never more than `capacity` requests are admitted.
 */
export interface SlidingWindow {
  /** Words of 32 bits that a bucket takes; even, so that `doubles` can start at any bucket. */
  readonly words: number
  /** Admits a request and answers 0, or refuses it and answers the ms until a slot is certain. */
  admit(bucket: Bucket, at: number, now: number): number
  /** True when nothing that was admitted counts any more; may be late by a sub-window. */
  isIdle(bucket: Bucket, at: number, now: number): boolean
}

/** The same memory, seen as 32-bit words and as doubles; `at` counts words. */
export interface Bucket {
  readonly words: Uint32Array
  readonly doubles: Float64Array
}

/** Up to this capacity every admission time is kept: exact, and no larger than the ring. */
export const MAX_LOG_CAPACITY = 30

/** Sub-windows of a ring. The rate is a multiple of 10 s, so each is at least 1 s long. */
const SUB_WINDOWS = 60
/** One more than a window has: the oldest is still partly inside. */
const CIRCLE = SUB_WINDOWS + 1
/** Words in front of the counters. */
const RING_AT = 4

/** The window that fits the capacity. */
export function createWindow(capacity: number, windowMs: number): SlidingWindow {
  return capacity <= MAX_LOG_CAPACITY
    ? new ExactLog(capacity, windowMs)
    : new SubWindowRing(capacity, windowMs)
}

/** The times of the last `capacity` admissions, in a circle: `[oldest, count, times…]`. */
export class ExactLog implements SlidingWindow {
  readonly words: number
  readonly #capacity: number
  readonly #windowMs: number

  constructor(capacity: number, windowMs: number) {
    this.words = 2 + 2 * capacity
    this.#capacity = capacity
    this.#windowMs = windowMs
  }

  admit({ words, doubles }: Bucket, at: number, now: number): number {
    const oldest = words[at] as number
    const count = words[at + 1] as number
    const times = (at + 2) >>> 1
    if (count < this.#capacity) {
      doubles[times + count] = now
      words[at + 1] = count + 1
      return 0
    }
    const freeAt = (doubles[times + oldest] as number) + this.#windowMs
    if (now < freeAt) return freeAt - now
    doubles[times + oldest] = now
    words[at] = oldest + 1 === this.#capacity ? 0 : oldest + 1
    return 0
  }

  isIdle({ words, doubles }: Bucket, at: number, now: number): boolean {
    const oldest = words[at] as number
    const count = words[at + 1] as number
    if (count === 0) return true
    const newest = count < this.#capacity ? count - 1 : (oldest || count) - 1
    return now - (doubles[((at + 2) >>> 1) + newest] as number) >= this.#windowMs
  }

  /** When requests were admitted, the oldest first. */
  times({ words, doubles }: Bucket, at: number): number[] {
    const oldest = words[at] as number
    const count = words[at + 1] as number
    const first = (at + 2) >>> 1
    return Array.from(
      { length: count },
      (_, index) => doubles[first + ((oldest + index) % count)] as number,
    )
  }
}

/**
 * Counters of sub-windows in a circle: `[newest sub-window, total, full until (double), counters…]`.
 *
 * A sub-window counts in full until its *last* admission has left the window, which is strict, and
 * exact for bursts. The place of that admission inside its sub-window is in the upper 16 bits of
 * the counter; above 65,535 all 32 bits count, and a sub-window counts until all of it has left.
 */
class SubWindowRing implements SlidingWindow {
  readonly words = RING_AT + CIRCLE + 1
  readonly #capacity: number
  readonly #windowMs: number
  readonly #subWindowMs: number
  /** What one step of the upper 16 bits stands for. */
  readonly #tickMs: number
  readonly #hasTicks: boolean
  readonly #countMask: number

  constructor(capacity: number, windowMs: number) {
    this.#capacity = capacity
    this.#windowMs = windowMs
    this.#subWindowMs = windowMs / SUB_WINDOWS
    this.#tickMs = Math.max(1, this.#subWindowMs / 0xfff0)
    this.#hasTicks = capacity <= 0xffff
    this.#countMask = this.#hasTicks ? 0xffff : 0xffffffff
  }

  admit({ words, doubles }: Bucket, at: number, now: number): number {
    const fullUntil = doubles[(at + 2) >>> 1] as number
    if (now < fullUntil) return fullUntil - now
    // An integer of 32 bits, because the remainder of a double costs more than all the rest.
    const current = (now / this.#subWindowMs) | 0
    const total = this.#advance(words, at, current, now)
    if (total >= this.#capacity) {
      const freeAt = this.#freeAt(words, at, current)
      doubles[(at + 2) >>> 1] = freeAt
      return freeAt - now
    }
    words[at + 1] = total + 1
    const place = at + RING_AT + (current % CIRCLE)
    const count = this.#count(words[place] as number)
    words[place] = this.#hasTicks ? this.#tick(current, now) * 0x10000 + count + 1 : count + 1
    return 0
  }

  isIdle({ words }: Bucket, at: number, now: number): boolean {
    return ((now / this.#subWindowMs) | 0) - (words[at] as number) > SUB_WINDOWS
  }

  /** Drops what has left the window and answers how many admissions still count. */
  #advance(words: Uint32Array, at: number, current: number, now: number): number {
    let total = words[at + 1] as number
    const newest = words[at] as number
    if (newest !== current) {
      for (let subWindow = Math.max(newest + 1, current - SUB_WINDOWS); subWindow <= current; ) {
        const place = at + RING_AT + (subWindow % CIRCLE)
        total -= this.#count(words[place] as number)
        words[place] = 0
        subWindow += 1
      }
      words[at] = current
    }
    // The oldest sub-window stands half outside: it goes when its last admission has gone.
    const place = at + RING_AT + ((current + 1) % CIRCLE)
    const word = words[place] as number
    if (word !== 0 && this.#leavesAt(current - SUB_WINDOWS, word) <= now) {
      total -= this.#count(word)
      words[place] = 0
    }
    words[at + 1] = total
    return total
  }

  /** When the oldest sub-window with admissions leaves the window. */
  #freeAt(words: Uint32Array, at: number, current: number): number {
    for (let age = SUB_WINDOWS; ; age -= 1) {
      const word = words[at + RING_AT + ((current + CIRCLE - age) % CIRCLE)] as number
      if (word !== 0 || age === 0) return this.#leavesAt(current - age, word)
    }
  }

  #count(word: number): number {
    return (word & this.#countMask) >>> 0
  }

  #leavesAt(subWindow: number, word: number): number {
    if (!this.#hasTicks) return (subWindow + 1) * this.#subWindowMs + this.#windowMs
    return (this.#firstTick(subWindow) + (word >>> 16)) * this.#tickMs + this.#windowMs
  }

  /** Ticks from the start of the sub-window, rounded up, because an early end would over-admit. */
  #tick(subWindow: number, now: number): number {
    return Math.ceil(now / this.#tickMs) - this.#firstTick(subWindow)
  }

  #firstTick(subWindow: number): number {
    return Math.floor((subWindow * this.#subWindowMs) / this.#tickMs)
  }
}
