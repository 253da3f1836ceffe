import { pipeline, type Transform } from 'node:stream'
import type { BodyTransform } from '../../../policy/exchange/policy-exchange.ts'
import { joined } from '../syntax/body-tracker.ts'
import { encodeHead, mayTrail } from '../syntax/message-fields.ts'
import type { BodySink } from './request-body.ts'

/** Output of a transformed body. `write` returns false when it wants no more until `resume()`. */
export interface PipeOutput {
  /** Before the first byte: how many there are, where the whole body is known. */
  begin?(length: number | undefined): void
  write(chunk: Buffer): boolean
  end(): void
  /** After `write()` of the pipe answered false. */
  onRoom(): void
  onError(error: Error): void
}

/** Bytes of a changed body that are kept until its length is known: a small one may unpack to many. */
const MAX_WHOLE = 4_194_304

/** A body on its way through the changes of a policy. There is at least one. */
export class BodyPipe implements BodySink {
  readonly #first: Transform
  readonly #last: Transform
  readonly #output: PipeOutput
  /** The whole body has been read: further output is its end. */
  #isEnding = false
  #hasBegun: boolean
  /** Output of a whole body, until its length is known. */
  #parts: Buffer[] = []
  #partBytes = 0

  constructor(transforms: readonly BodyTransform[], output: PipeOutput) {
    const [first, ...rest] = transforms.map((transform) => transform.create())
    if (!first) throw new Error('a pipe needs a transform')
    const last = rest.at(-1) ?? first
    this.#first = first
    this.#last = last
    this.#output = output
    this.#hasBegun = !output.begin
    if (!transforms.every(({ isWhole }) => isWhole)) this.#begin(undefined)
    if (rest.length > 0) pipeline([first, ...rest], () => {})
    for (const stage of [first, ...rest]) stage.on('error', (error) => output.onError(error))
    first.on('drain', () => output.onRoom())
    last.on('data', (chunk: Buffer) => this.#onPart(chunk))
    last.on('end', () => {
      this.#begin(this.#partBytes)
      output.end()
    })
  }

  /** Takes the bytes; false: wait for `onRoom` of the output. */
  write(chunk: Buffer): boolean {
    return this.#first.write(chunk)
  }

  end(): void {
    this.#isEnding = true
    this.#first.end()
  }

  #onPart(part: Buffer): void {
    if (!this.#hasBegun) {
      this.#parts.push(part)
      this.#partBytes += part.length
      if (this.#isEnding && this.#partBytes <= MAX_WHOLE) return
      this.#begin(undefined)
    } else if (!this.#output.write(part)) {
      this.#last.pause()
    }
  }

  #begin(length: number | undefined): void {
    if (this.#hasBegun) return
    this.#hasBegun = true
    this.#output.begin?.(length)
    if (this.#partBytes > 0 && !this.#output.write(joined(this.#parts))) this.#last.pause()
    this.#parts = []
  }

  /** The output can take more. */
  resume(): void {
    this.#last.resume()
  }

  destroy(): void {
    this.#first.destroy()
    this.#last.destroy()
  }
}

/** One piece of a body as a chunk (RFC 9112 7.1). */
export function encodeChunk(content: Buffer): Buffer {
  const size = content.length.toString(16)
  const chunk = Buffer.allocUnsafe(size.length + content.length + 4)
  chunk.write(`${size}\r\n`, 'latin1')
  content.copy(chunk, size.length + 2)
  chunk.write('\r\n', size.length + 2 + content.length, 'latin1')
  return chunk
}

export const LAST_CHUNK: Buffer = Buffer.from('0\r\n\r\n')

/** The end of a body in chunks; trailers that may not come behind a body are left out. */
export function lastChunk(trailers: readonly string[]): Buffer {
  const fields: string[] = []
  for (let at = 0; at < trailers.length; at += 2) {
    const name = trailers[at] as string
    if (mayTrail(name)) fields.push(name, trailers[at + 1] as string)
  }
  return fields.length === 0 ? LAST_CHUNK : encodeHead('0', fields)
}
