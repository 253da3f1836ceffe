import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { ServiceTime } from '../probes/service-time.ts'
import { type Resources, ResourceWatch } from './resources.ts'
import type { SteadyClock } from './steady-clock.ts'

export interface DeviceWatchOptions {
  readonly clock: Clock
  readonly steady: SteadyClock
  readonly everyMs: number
  readonly serviceTime: ServiceTime
  /** Returns the time of the service, undefined without an answer. */
  readonly serviceDate: () => Promise<number | undefined>
  /** Called when the device's clock was set and the service was asked for its time. */
  readonly onClockSet: () => void
  readonly onChange: () => void
  readonly signal: AbortSignal
  readonly log: Logger
}

/** Watches the device's clock, memory and file descriptors. Reports changes. */
export class DeviceWatch {
  readonly #options: DeviceWatchOptions
  readonly #resources: ResourceWatch

  constructor(options: DeviceWatchOptions) {
    this.#options = options
    this.#resources = new ResourceWatch({ now: () => options.clock.monotonic() })
  }

  get resources(): Resources {
    return this.#resources.current
  }

  /** Reports that a connection failed for lack of a file descriptor. */
  exhausted(): void {
    this.#resourcesChanged(this.#resources.exhausted())
  }

  /** Watches until the signal is aborted. */
  async run(): Promise<void> {
    const { steady, everyMs, signal } = this.#options
    while (!signal.aborted) {
      await steady.sleep(everyMs, signal).catch(() => {})
      const jumpMs = steady.readChange()
      if (signal.aborted) return
      this.#resourcesChanged(this.#resources.check())
      if (jumpMs !== 0) await this.#clockSet(jumpMs)
    }
  }

  async #clockSet(jumpMs: number): Promise<void> {
    const { log, serviceTime, serviceDate, onClockSet, onChange } = this.#options
    log.warn({ jumpMs: Math.round(jumpMs) }, 'the device clock was changed')
    onChange()
    // After sleep the clock jumps too, but is right. The earlier comparison with the service is outdated.
    const date = await serviceDate().catch(() => undefined)
    if (date !== undefined) serviceTime.note(date)
    onClockSet()
    onChange()
  }

  #resourcesChanged(isNews: boolean): void {
    if (!isNews) return
    const { log, onChange } = this.#options
    const { current } = this.#resources
    if ('problem' in current)
      log.warn({ detail: current.problem.detail }, 'the process is out of resources')
    else log.info('the process has enough resources again')
    onChange()
  }
}
