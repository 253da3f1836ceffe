import type { Duplex } from 'node:stream'
import type * as z from 'zod'

/** Why a message did not arrive. */
export type ChannelFault = 'closed' | 'timeout' | 'too-large' | 'malformed'

export class ChannelError extends Error {
  override readonly name = 'ChannelError'
  readonly fault: ChannelFault

  constructor(fault: ChannelFault) {
    super(`no message: ${fault}`)
    this.fault = fault
  }
}

/** JSON messages over a stream, one per line, with bounds for their size and for the whole exchange. */
export class MessageChannel {
  readonly #stream: Duplex
  readonly #maxBytes: number
  #chunks: Buffer[] = []
  #sizeBytes = 0
  #fault: ChannelFault | undefined
  #wake: () => void = () => {}

  /** Ends the stream `deadlineMs` from now, however much a slow peer sends until then. */
  constructor(
    stream: Duplex,
    { maxBytes, deadlineMs }: { readonly maxBytes: number; readonly deadlineMs: number },
  ) {
    this.#stream = stream
    this.#maxBytes = maxBytes
    const timer = setTimeout(() => this.#fail('timeout'), deadlineMs)
    stream.on('data', (chunk: Buffer) => this.#take(chunk))
    stream.on('error', () => this.#fail('closed'))
    stream.once('end', () => this.#fail('closed'))
    stream.once('close', () => {
      clearTimeout(timer)
      this.#fail('closed')
    })
  }

  /** Why no more messages arrive. Undefined while they may. */
  get fault(): ChannelFault | undefined {
    return this.#fault
  }

  send(message: object): void {
    if (!this.#stream.destroyed) this.#stream.write(`${JSON.stringify(message)}\n`)
  }

  /** The next message as a value. Throws a ChannelError. Only one call at a time. */
  async receive(): Promise<unknown> {
    for (;;) {
      const line = this.#takeLine()
      if (line !== undefined) return parseLine(line)
      if (this.#fault !== undefined) throw new ChannelError(this.#fault)
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  /** Sends what is left, then ends the stream. The deadline also ends a peer that takes nothing. */
  end(): void {
    this.#stream.end()
  }

  #take(chunk: Buffer): void {
    this.#sizeBytes += chunk.length
    if (this.#sizeBytes > this.#maxBytes) {
      this.#fail('too-large')
      return
    }
    this.#chunks.push(chunk)
    if (chunk.includes(10)) this.#wake()
  }

  #takeLine(): string | undefined {
    const last = this.#chunks.at(-1)
    if (!last) return undefined
    const all = Buffer.concat(this.#chunks)
    const end = all.indexOf(10)
    if (end < 0) return undefined
    const rest = all.subarray(end + 1)
    this.#chunks = rest.length > 0 ? [rest] : []
    this.#sizeBytes = rest.length
    return all.subarray(0, end).toString()
  }

  #fail(fault: ChannelFault): void {
    this.#fault ??= fault
    // A peer may end its side after its message. Its message still counts, and our answer is still sent.
    if (fault !== 'closed') {
      this.#chunks = []
      this.#stream.destroy()
    }
    this.#wake()
  }
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    throw new ChannelError('malformed')
  }
}

/** Parses a message, or throws a ChannelError. */
export function messageOf<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  throw new ChannelError('malformed')
}
