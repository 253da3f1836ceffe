import { type EventLoopUtilization, performance } from 'node:perf_hooks'
import process from 'node:process'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'

const POLL_MS = 5_000
/** The process is idle if it used at most this share of the time since the last check. */
const IDLE_SHARE = 0.05
/**
 * Garbage that is worth a pause: this many bytes, and this share of the heap that was left after the last
 * collection.
 */
const LEAST_GARBAGE_BYTES = 4 * 1024 * 1024
const LEAST_GARBAGE_SHARE = 0.25
/** A larger heap takes more than 50 ms: V8 has its own ways with it, which pause less. */
const MAX_USED_BYTES = 64 * 1024 * 1024
/** Pauses are at most a thousandth of the time, also on a slow device. */
const REST_PER_PAUSE = 1_000

/** The heap of a process, and how busy its event loop has been. */
export interface Heap {
  usedBytes(): number
  /** A full collection, which blocks the process. Returns milliseconds. */
  collect(): number
  /** Busy and idle time since the process has started, in ms. */
  utilization(): Pick<EventLoopUtilization, 'idle' | 'active'>
}

/** Before it a collection that is asked for keeps the pages that it empties. */
const SINCE_NODE = 24

/** The heap of this process; undefined on an older Node, where that would be of no use. */
export function ownHeap(nodeVersion: string = process.versions.node): Heap | undefined {
  if (Number.parseInt(nodeVersion, 10) < SINCE_NODE) return undefined
  let gc: typeof globalThis.gc
  return {
    usedBytes: () => process.memoryUsage().heapUsed,
    collect: () => {
      gc ??= findCollector()
      const startedAt = performance.now()
      // Only this kind returns memory pages to the system.
      gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' })
      return performance.now() - startedAt
    },
    utilization: () => performance.eventLoopUtilization(),
  }
}

/**
 * V8 exposes its collector to contexts that are created while this flag is set. As an option of the command
 * line, the flag would disable Node's compiled code of its own modules: 10 to 30 ms more at each start.
 */
function findCollector(): typeof globalThis.gc {
  setFlagsFromString('--expose-gc')
  try {
    return runInNewContext('gc')
  } finally {
    setFlagsFromString('--no-expose-gc')
  }
}

/**
 * Frees garbage of an idle process. V8 collects when memory is allocated, and an idle process allocates none.
 * A start, or a restore of a thousand tunnels, leaves much garbage before an idle time. A request that comes
 * during a collection waits until it ends.
 */
export class IdleCollector {
  readonly #heap: Heap
  readonly #clock: Clock
  readonly #log: Logger
  readonly #stop = new AbortController()
  #running: Promise<void> | undefined
  /** Upper bound of the garbage that was left: V8 may have collected more since. */
  #leftBytes = 0
  #restsUntil = 0
  #seen = { idle: 0, active: 0 }

  constructor({ heap, clock, log }: { heap: Heap; clock: Clock; log: Logger }) {
    this.#heap = heap
    this.#clock = clock
    this.#log = log
  }

  start(): void {
    this.#running ??= this.#run(this.#stop.signal).catch(() => {})
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#running
  }

  async #run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#clock.sleep(POLL_MS, signal)
      if (this.#wasIdle() && this.#clock.monotonic() >= this.#restsUntil) this.#poll()
    }
  }

  #wasIdle(): boolean {
    const { idle, active } = this.#heap.utilization()
    const activeMs = active - this.#seen.active
    const idleMs = idle - this.#seen.idle
    this.#seen = { idle, active }
    return activeMs <= IDLE_SHARE * (activeMs + idleMs)
  }

  #poll(): void {
    const usedBytes = this.#heap.usedBytes()
    this.#leftBytes = Math.min(this.#leftBytes, usedBytes)
    const least = Math.max(LEAST_GARBAGE_BYTES, LEAST_GARBAGE_SHARE * this.#leftBytes)
    if (usedBytes > MAX_USED_BYTES || usedBytes - this.#leftBytes < least) return
    const pauseMs = this.#heap.collect()
    this.#restsUntil = this.#clock.monotonic() + REST_PER_PAUSE * pauseMs
    this.#leftBytes = this.#heap.usedBytes()
    this.#log.debug({ pauseMs, usedBytes, leftBytes: this.#leftBytes }, 'garbage collected')
  }
}
