import { execFile } from 'node:child_process'
import { type Clock, systemClock } from '../../base/clock.ts'
import type { Closer } from '../../base/closer.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database } from '../../store/database.ts'

/** Environment of a `Type=notify` service; all parts are optional. */
interface ServiceManagerOptions {
  /** `NOTIFY_SOCKET`: a path, or an abstract name after `@`. */
  readonly notifySocket: string | undefined
  /** `WATCHDOG_USEC`: microseconds within which a ping must come. */
  readonly watchdogUsec: string | undefined
  /** `WATCHDOG_PID`: the process that the watchdog monitors. */
  readonly watchdogPid: string | undefined
  readonly log: Logger
}

type Send = (text: string) => void

/**
 * Reports the state to the service manager: sd_notify(3). Without a service manager, calls do nothing. Node
 * has no Unix datagram sockets, so a small native module sends them. On platforms without a build, the
 * program `systemd-notify` does it; the unit has NotifyAccess=all for that.
 */
export class ServiceManager {
  readonly #options: ServiceManagerOptions
  #send: Send = () => {}
  #close: () => void = () => {}
  #watchdog: NodeJS.Timeout | undefined
  #lastStatus = ''
  /** Another process is the service. */
  #hasLeft = false

  constructor(options: ServiceManagerOptions) {
    this.#options = options
  }

  /** Whether there is a service manager. Without one, callers need not make a status text. */
  get isThere(): boolean {
    return Boolean(this.#options.notifySocket)
  }

  async open(): Promise<void> {
    const { notifySocket, log } = this.#options
    if (!notifySocket) return
    const target = notifySocket.replace(/^@/, '\0')
    try {
      const { DgramSocket } = await import('node-unix-socket')
      const socket = new DgramSocket()
      socket.on('error', (error) => log.warn({ err: error }, 'cannot reach the service manager'))
      this.#send = (text) => {
        const bytes = Buffer.from(text)
        socket.sendTo(bytes, 0, bytes.length, target, (error) => {
          if (error) log.warn({ err: error }, 'cannot reach the service manager')
        })
      }
      this.#close = () => socket.close()
    } catch (error) {
      log.warn({ err: error }, 'native module not available, using systemd-notify')
      this.#send = (text) => {
        execFile('systemd-notify', text.split('\n'), (failure) => {
          if (failure) log.warn({ err: failure }, 'cannot reach the service manager')
        })
      }
    }
  }

  /** Everything local is up. The connection to the service does not matter here. */
  ready(status: string): void {
    this.#lastStatus = status
    this.#tell(`READY=1\nSTATUS=${oneLine(status)}`)
  }

  /** The sentence that `systemctl status` shows. */
  status(text: string): void {
    if (text === this.#lastStatus) return
    this.#lastStatus = text
    this.#tell(`STATUS=${oneLine(text)}`)
  }

  /** Another process is to take over. */
  reloading(): void {
    const usec = process.hrtime.bigint() / 1_000n
    this.#tell(`RELOADING=1\nMONOTONIC_USEC=${usec}`)
  }

  /** The other process is the service now. Later reports of this process are ignored. */
  leaveTo(pid: number): void {
    this.#tell(`MAINPID=${pid}`)
    clearInterval(this.#watchdog)
    this.#hasLeft = true
  }

  /** The other process died, which systemd does not see. This process is the service until it ends. */
  returnToEnd(status: string): void {
    this.#hasLeft = false
    this.#tell(`MAINPID=${process.pid}\nSTOPPING=1\nSTATUS=${oneLine(status)}`)
    this.startWatchdog(() => {})
  }

  stopping(): void {
    this.#tell('STOPPING=1\nSTATUS=stopping')
  }

  /**
   * Pings at half of the watchdog's time while `check` does not throw. A blocked event loop stops the timer.
   * The check has to be local: else an offline device would restart again and again.
   */
  startWatchdog(check: () => void): void {
    const { watchdogUsec, watchdogPid, log } = this.#options
    const everyMs = Number(watchdogUsec) / 2_000
    const isForUs = watchdogPid === undefined || Number(watchdogPid) === process.pid
    if (!(everyMs >= 1) || !isForUs) return
    this.#watchdog = setInterval(() => {
      try {
        check()
        this.#tell('WATCHDOG=1')
      } catch (error) {
        log.error({ err: error }, 'watchdog check failed, not notifying systemd')
      }
    }, everyMs)
  }

  #tell(text: string): void {
    if (!this.#hasLeft) this.#send(text)
  }

  close(): void {
    clearInterval(this.#watchdog)
    this.#close()
    this.#send = () => {}
    this.#close = () => {}
  }
}

/** A line break would start a new assignment. */
const oneLine = (text: string) => text.replace(/\s+/g, ' ')

/** After a change: a thousand tunnels that open are one piece of news. */
const PAUSE_MS = 500
/** The sentence contains durations, and some changes are not announced. */
const EVERY_MS = 10_000

interface StatusLineOptions {
  /** The current sentence. */
  readonly sentence: () => string
  /** Calls the listener when the sentence may be another; returns how to stop that. */
  readonly onChange: (listener: () => void) => () => void
  readonly tell: (sentence: string) => void
  readonly clock: Clock
}

/** Keeps the sentence that a service manager shows true. */
export class StatusLine {
  readonly #options: StatusLineOptions
  readonly #wakeUp = new AutoResetEvent()
  #isStopped = false
  #off: () => void = () => {}

  constructor(options: StatusLineOptions) {
    this.#options = options
  }

  start(): void {
    this.#off = this.#options.onChange(() => this.#wakeUp.set())
    void this.#run()
  }

  stop(): void {
    this.#isStopped = true
    this.#off()
    this.#wakeUp.set()
  }

  async #run(): Promise<void> {
    const { sentence, tell, clock } = this.#options
    while (!this.#isStopped) {
      await this.#wakeUp.wait(clock, EVERY_MS)
      if (!this.#isStopped) await clock.sleep(PAUSE_MS)
      if (!this.#isStopped) tell(sentence())
    }
  }
}

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
  /** Called with the current sentence after changes and every 10 s. */
  readonly onSentence?: (sentence: string) => void
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

  /** Opened before the service, so it closes after the service. */
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
    { database, sentence, onChange = () => () => {}, onSentence }: SupervisedService,
    closer: Closer,
  ): void {
    const manager = this.#manager
    this.#sentence = sentence
    manager.ready(sentence())
    manager.startWatchdog(() => database.ping())
    if (manager.isThere || onSentence) {
      const tell = (text: string) => {
        manager.status(text)
        onSentence?.(text)
      }
      const line = new StatusLine({ sentence, onChange, tell, clock: systemClock })
      closer.own('status line', line, (it) => it.stop()).start()
    }
    this.#stop.addEventListener('abort', () => manager.stopping(), { once: true })
  }

  /** Another process will replace this one. */
  reloading(): void {
    this.#manager.reloading()
  }

  /** It did not: the service is up as before. */
  reloadFailed(): void {
    this.#manager.ready(this.#sentence())
  }

  /** The other process serves. This one reports nothing more. */
  leaveTo(pid: number): void {
    this.#manager.leaveTo(pid)
  }

  /** The other process died. After a stop of both processes, this is expected. */
  bereft(sentence: string): void {
    if (!this.#stop.aborted) this.#manager.returnToEnd(sentence)
  }
}
