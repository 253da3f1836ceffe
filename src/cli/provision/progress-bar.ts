const WIDTH = 24

export interface ProgressBarOptions {
  readonly stream: NodeJS.WritableStream & { readonly columns?: number }
  readonly total: number
}

/** One line that fills up, on a terminal; nothing anywhere else. */
export class ProgressBar {
  readonly #stream: ProgressBarOptions['stream']
  readonly #total: number
  readonly #isShown: boolean
  #done = 0

  constructor({ stream, total }: ProgressBarOptions) {
    this.#stream = stream
    this.#total = total
    this.#isShown = total > 1 && 'isTTY' in stream && stream.isTTY === true
  }

  /** One more is done. */
  advance(name: string): void {
    this.show(this.#done + 1, name)
  }

  /** So many are done. */
  show(done: number, text: string): void {
    this.#done = Math.min(this.#total, Math.max(0, done))
    const filled = Math.round((this.#done / this.#total) * WIDTH)
    const bar = '#'.repeat(filled).padEnd(WIDTH, '.')
    this.#draw(`[${bar}] ${this.#done}/${this.#total} ${text}`)
  }

  /** Takes the line away. */
  clear(): void {
    this.#draw('')
  }

  #draw(line: string): void {
    // A line that wraps could not be taken away again. Some terminals do not know their width: 0.
    const width = (this.#stream.columns || 80) - 1
    if (this.#isShown) this.#stream.write(`\r\x1b[2K${line.slice(0, width)}`)
  }
}
