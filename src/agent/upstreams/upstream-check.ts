import { createConnection, type LookupFunction } from 'node:net'
import { AutoResetEvent } from '../../base/auto-reset-event.ts'
import type { Clock } from '../../base/clock.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { UpstreamTimings } from '../timings.ts'
import type { ForwardTarget } from './forward-target.ts'

/** Whether the local service takes connections; `unknown` until it was tried often enough. */
export type Upstream = 'up' | 'down' | 'unknown'

/** Failures in a row that make a service down; one success makes it up. */
const FAILURES_TO_DOWN = 2
const CHECKS_AT_ONCE = 16

export interface UpstreamCheckOptions {
  readonly timings: UpstreamTimings
  readonly clock: Clock
  /** How names of a target are looked up; unset: as the system does it. */
  readonly lookupFor?: (target: ForwardTarget) => LookupFunction | undefined
  /** Whether the target takes a TCP connection. */
  readonly connects?: typeof takesConnection
  /** Called after a service became up or down. */
  readonly onChange: () => void
}

interface Watched {
  readonly target: ForwardTarget
  watchers: number
  failures: number
  state: Upstream
}

/** Tries the local services of all tunnels, each service once per round however many use it. */
export class UpstreamCheck {
  readonly #options: UpstreamCheckOptions
  readonly #watched = new Map<string, Watched>()
  readonly #semaphore = new Semaphore(CHECKS_AT_ONCE)
  readonly #wakeUp = new AutoResetEvent()
  #isStopped = false
  #running: Promise<void> | undefined

  constructor(options: UpstreamCheckOptions) {
    this.#options = options
  }

  start(): void {
    this.#running ??= this.#run()
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    this.#wakeUp.set()
    await this.#running
  }

  /** Adds a target under its normal form and tries it at once; returns how to let go of it. */
  watch(key: string, target: ForwardTarget): () => void {
    const known = this.#watched.get(key)
    const watched: Watched = known ?? { target, watchers: 0, failures: 0, state: 'unknown' }
    watched.watchers += 1
    if (!known) {
      this.#watched.set(key, watched)
      if (this.#running) void this.#check(watched)
    }
    return () => {
      watched.watchers -= 1
      if (watched.watchers === 0) this.#watched.delete(key)
    }
  }

  stateOf(key: string): Upstream {
    return this.#watched.get(key)?.state ?? 'unknown'
  }

  async #run(): Promise<void> {
    const { clock, timings } = this.#options
    while (!this.#isStopped) {
      await Promise.all([...this.#watched.values()].map((watched) => this.#check(watched)))
      if (!this.#isStopped) await this.#wakeUp.wait(clock, timings.intervalMs)
    }
  }

  async #check(watched: Watched): Promise<void> {
    const { timings, connects = takesConnection, lookupFor, onChange } = this.#options
    const { target } = watched
    const isUp = await this.#semaphore.run(async () => {
      return !this.#isStopped && (await connects(target, timings.connectMs, lookupFor?.(target)))
    })
    if (this.#isStopped) return
    const before = watched.state
    watched.failures = isUp ? 0 : watched.failures + 1
    if (isUp) watched.state = 'up'
    else if (watched.failures >= FAILURES_TO_DOWN) watched.state = 'down'
    if (watched.state !== before) onChange()
  }
}

function takesConnection(
  { host, port }: ForwardTarget,
  withinMs: number,
  lookup?: LookupFunction,
): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host, port, ...(lookup && { lookup }) })
    const settle = (isUp: boolean) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(isUp)
    }
    const timer = setTimeout(() => settle(false), withinMs)
    socket.once('connect', () => settle(true))
    socket.on('error', () => settle(false))
  })
}
