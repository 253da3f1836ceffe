/**
 * What an old and a new process of a service say to each other, in this order: the new one that it
 * could start, the old one that it has let go, the new one that it serves.
 */
export type HandoverMessage = 'prepared' | 'released' | 'serving'

/** The last words of a new process that cannot start: the status of the service shows them. */
export interface HandoverFailure {
  readonly failed: string
}

/** In the environment of the new process: the pid of the old one, whose child it is. */
export const PREDECESSOR = 'DEVICE_GATEWAY_PREDECESSOR'

/** The process that started this one to take its place. */
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

  /** Undefined for a process that takes nobody's place; no child takes the mark for its own. */
  static meet(process: NodeJS.Process): Predecessor | undefined {
    const pid = Number(process.env[PREDECESSOR])
    delete process.env[PREDECESSOR]
    const isOurs = process.send !== undefined && pid === process.ppid
    return isOurs ? new Predecessor(process, pid) : undefined
  }

  /**
   * Says that all is prepared that could fail before, and resolves when the old process has let go of
   * the data folder. Rejects when that one has ended.
   */
  released(): Promise<void> {
    const { promise, settle } = this.#awaitMessage('released')
    this.#send('prepared')
    return promise.finally(settle)
  }

  /**
   * Says that this process serves, and resolves when the old one has taken note, or has ended: until
   * then that one may still end this process and take everything back.
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
