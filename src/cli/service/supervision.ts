import { systemClock } from '../../base/clock.ts'
import type { Closer } from '../../base/closer.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database } from '../../store/database.ts'
import { ServiceManager } from './service-manager.ts'
import { StatusLine } from './status-line.ts'

export interface SupervisionOptions {
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly log: Logger
  readonly stop: AbortSignal
}

/** A service that is up. */
export interface SupervisedService {
  readonly database: Pick<Database, 'ping'>
  /** How it is, for people. */
  readonly sentence: () => string
  /** Calls the listener when the sentence may be another; returns how to stop that. */
  readonly onChange?: (listener: () => void) => () => void
}

/** Keeps the service manager told how a service is, where there is one. */
export class Supervision {
  readonly #manager: ServiceManager
  readonly #stop: AbortSignal
  #sentence: () => string = () => ''

  private constructor(manager: ServiceManager, stop: AbortSignal) {
    this.#manager = manager
    this.#stop = stop
  }

  /** Before the service starts, so that it is closed after it. */
  static async open(
    { environment, log, stop }: SupervisionOptions,
    closer: Closer,
  ): Promise<Supervision> {
    const manager = new ServiceManager({
      notifySocket: environment.NOTIFY_SOCKET,
      watchdogUsec: environment.WATCHDOG_USEC,
      watchdogPid: environment.WATCHDOG_PID,
      log,
    })
    await closer.own('service manager', manager, (it) => it.close()).open()
    return new Supervision(manager, stop)
  }

  /** The service is up: says so, keeps its sentence true, and feeds the watchdog. */
  ready(
    { database, sentence, onChange = () => () => {} }: SupervisedService,
    closer: Closer,
  ): void {
    const manager = this.#manager
    this.#sentence = sentence
    manager.ready(sentence())
    manager.startWatchdog(() => database.ping())
    if (manager.isThere) {
      const tell = (text: string) => manager.status(text)
      const line = new StatusLine({ sentence, onChange, tell, clock: systemClock })
      closer.own('status line', line, (it) => it.stop()).start()
    }
    this.#stop.addEventListener('abort', () => manager.stopping(), { once: true })
  }

  /** Another process is to take this one's place. */
  reloading(): void {
    this.#manager.reloading()
  }

  /** It did not: the service is up as before. */
  reloadFailed(): void {
    this.#manager.ready(this.#sentence())
  }

  /** It has: this one says nothing any more. */
  leaveTo(pid: number): void {
    this.#manager.leaveTo(pid)
  }

  /** That process has died. Where this one was told to stop, so was that one. */
  bereft(sentence: string): void {
    if (!this.#stop.aborted) this.#manager.returnToEnd(sentence)
  }
}
