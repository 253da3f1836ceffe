import { createInterface } from 'node:readline'
import { StartError } from '../../base/app-error.ts'

export interface QuestionsOptions {
  readonly input: NodeJS.ReadableStream
  readonly output: NodeJS.WritableStream
  readonly stop: AbortSignal
}

/** Asks at a terminal until an answer is valid. */
export class Questions {
  readonly #options: QuestionsOptions

  constructor(options: QuestionsOptions) {
    this.#options = options
  }

  /** `parse` returns the value, or throws an error with the reason. Throws a StartError at the end of input. */
  async ask<T>(question: string, parse: (text: string) => T): Promise<T> {
    for (;;) {
      const text = await this.#line(question)
      try {
        return parse(text.trim())
      } catch (error) {
        this.#options.output.write(`${(error as Error).message}\n`)
      }
    }
  }

  /** An empty answer means yes. */
  confirm(question: string): Promise<boolean> {
    return this.ask(`${question} [Y/n] `, (text) => {
      if (/^(y|yes|)$/i.test(text)) return true
      if (/^(n|no)$/i.test(text)) return false
      throw new Error('Answer y or n.')
    })
  }

  #line(question: string): Promise<string> {
    const { input, output, stop } = this.#options
    const lines = createInterface({ input, output })
    return new Promise((resolve, reject) => {
      const end = () => lines.close()
      stop.addEventListener('abort', end, { once: true })
      lines.question(question, (text) => {
        resolve(text)
        lines.close()
      })
      lines.once('SIGINT', end)
      lines.once('close', () => {
        stop.removeEventListener('abort', end)
        reject(new StartError('No answer was given. Nothing was written.'))
      })
    })
  }
}
