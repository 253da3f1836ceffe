import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { withDeadline } from '../../base/deadline.ts'
import { type HandoverFailure, type HandoverMessage, PREDECESSOR } from './handover-message.ts'

/** With `process-reload.ts` less than the `TimeoutStartSec` of the unit, within which systemd wants a reload to end. */
const PREPARED_WITHIN_MS = 20_000
const SERVING_WITHIN_MS = 20_000

export interface SuccessorOptions {
  /** Sockets that listen, for descriptor 3 and the next ones. */
  readonly sockets: readonly number[]
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** A process that this one has started to take its place: the program as it lies on disk now. */
export class Successor {
  /** Resolves when it ends in any other way than it was told to, with how. */
  readonly died: Promise<string>
  readonly #child: ChildProcess
  readonly #ended: Promise<string>

  private constructor(child: ChildProcess) {
    this.#child = child
    this.died = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        if (code !== 0) resolve(`ended with ${signal ?? code}`)
      })
    })
    this.#ended = new Promise((resolve) => {
      child.once('error', (error) => resolve(`did not start: ${error.message}`))
      child.once('exit', (code, signal) => resolve(`ended with ${signal ?? code}`))
    })
  }

  /** With the arguments of this process. */
  static start({ sockets, environment }: SuccessorOptions): Successor {
    const { pid } = process
    const child = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
      stdio: ['ignore', 'inherit', 'inherit', ...sockets, 'ipc'],
      env: {
        ...environment,
        // It cannot be told its own pid, and goes by ours: see `main.ts`.
        LISTEN_PID: `${pid}`,
        LISTEN_FDS: `${sockets.length}`,
        [PREDECESSOR]: `${pid}`,
        WATCHDOG_PID: undefined,
      },
    })
    return new Successor(child)
  }

  get pid(): number {
    return this.#child.pid ?? -1
  }

  /** Resolves when it could start as far as that is possible beside this process. */
  prepared(): Promise<void> {
    return this.#hear('prepared', PREPARED_WITHIN_MS)
  }

  /** Tells it that it may go on; resolves when it serves. */
  takeOver(): Promise<void> {
    const heard = this.#hear('serving', SERVING_WITHIN_MS)
    const message: HandoverMessage = 'released'
    // When that does not reach it, it does not answer.
    this.#child.send(message, () => {})
    return heard
  }

  /** It goes its own way. */
  release(): void {
    if (this.#child.connected) this.#child.disconnect()
    this.#child.unref()
  }

  /** Ends it. Resolves when it is gone, and holds nothing any more. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#ended
  }

  async #hear(expected: HandoverMessage, withinMs: number): Promise<void> {
    const listening = new AbortController()
    const { signal } = listening
    const heard = once(this.#child, 'message', { signal }).then(([message]) => {
      const { failed } = message as Partial<HandoverFailure>
      if (failed !== undefined) throw new Error(`the new process cannot start: ${failed}`)
      if (message !== expected)
        throw new Error(`unexpected message of the new process: ${JSON.stringify(message)}`)
    })
    const ended = this.#ended.then((how) => {
      throw new Error(`the new process ${how}; see the log of the service`)
    })
    try {
      await withDeadline(Promise.race([heard, ended]), withinMs, 'starting the new process')
    } finally {
      heard.catch(() => {})
      listening.abort()
    }
  }
}
