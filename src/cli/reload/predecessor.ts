/**
 * Messages between the old and the new process of a service, in this order. `prepared`: the new process can
 * start. `released`: the old process released the data directory. `serving`: the new process serves.
 */
export type HandoverMessage = 'prepared' | 'released' | 'serving'

/** The last words of a new process that cannot start: the status of the service shows them. */
export interface HandoverFailure {
  readonly failed: string
}

/** Environment variable of the new process: process id of the old process, its parent. */
export const PREDECESSOR = 'DEVICE_GATEWAY_PREDECESSOR'

/** The process that started this process as its replacement. */
export class Predecessor {
  readonly pid: number
  /** Resolves when it has ended, or has said goodbye. */
  readonly gone: Promise<void>
  readonly #process: NodeJS.Process

  private constructor(process: NodeJS.Process, pid: number) {
    this.#process = process
    this.pid = pid
    this.gone = new Promise((resolve) => {
      process.once('disconnect', resolve)
      if (!process.connected) resolve()
    })
  }

  /** Undefined for a process that replaces none. Children do not inherit the mark. */
  static meet(process: NodeJS.Process): Predecessor | undefined {
    const pid = Number(process.env[PREDECESSOR])
    delete process.env[PREDECESSOR]
    const isOurs = process.send !== undefined && pid === process.ppid
    return isOurs ? new Predecessor(process, pid) : undefined
  }

  /**
   * Reports that all steps that can fail are done. Resolves when the old process has released the data
   * directory. Rejects if the old process ended.
   */
  released(): Promise<void> {
    const { promise, settle } = this.#awaitMessage('released')
    this.#send('prepared')
    return promise.finally(settle)
  }

  /**
   * Reports that this process serves. Resolves when the old process acknowledged it, or ended. Until then the
   * old process may end this one and take everything back.
   */
  serving(): Promise<void> {
    this.#send('serving')
    return this.gone
  }

  /** Says why this process ends instead; resolves when that is sent. */
  async failed(words: string): Promise<void> {
    const message: HandoverFailure = { failed: words }
    const process = this.#process
    if (!process.connected) return
    await new Promise<void>((resolve) => {
      process.send?.(message, undefined, undefined, () => resolve())
    })
  }

  #awaitMessage(expected: HandoverMessage) {
    const process = this.#process
    let onMessage: (message: unknown) => void = () => {}
    let onEnd = () => {}
    const promise = new Promise<void>((resolve, reject) => {
      onMessage = (message) => {
        if (message === expected) resolve()
      }
      onEnd = () => reject(new Error('the old process has ended during the reload'))
      process.on('message', onMessage)
      process.on('disconnect', onEnd)
      if (!process.connected) onEnd()
    })
    const settle = () => {
      process.off('message', onMessage)
      process.off('disconnect', onEnd)
    }
    return { promise, settle }
  }

  /** An old process that is gone hears nothing, and is of no more use. */
  #send(message: HandoverMessage): void {
    if (this.#process.connected) this.#process.send?.(message, undefined, undefined, () => {})
  }
}
