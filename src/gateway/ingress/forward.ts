import type { MuxadoError } from '../../muxado/error-code.ts'
import type { StreamHandler } from '../../muxado/stream.ts'
import type { ProxyStream } from '../stream-pool.ts'
import { UNTIL_CLOSE } from './body-framing.ts'
import { BodyTracker } from './body-tracker.ts'
import { isDialFailure, resemblesDialFailure } from './dial-failure.ts'
import type { HeadScanner } from './head-scanner.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'
import type { BodySink } from './request-body.ts'
import { parseResponseHead, type ResponseHead } from './response-head.ts'

/**
 * Why there is no whole response. `stale`: the service had closed a connection kept from an earlier
 * exchange, and nothing of an answer came. `unreachable`: the SDK could not connect to the service.
 * `invalid`: what came is not HTTP. `broken`: it ended too early. `lost`: the session did.
 */
export type ForwardFailure = 'stale' | 'unreachable' | 'invalid' | 'broken' | 'lost'

/** Who wants the response. After `onSwitch`, `onComplete` and `onFailure` nothing more comes. */
export interface ForwardOwner {
  /** A response with a 1xx status; the final one follows. */
  onInterim(head: ResponseHead): void
  /** `isMore`: body or end follow before this call stack ends. */
  onResponse(head: ResponseHead, isMore: boolean): void
  /** A part of the body, as framed; `release()` its bytes once they went on. */
  onBody(chunk: Buffer): void
  onComplete(): void
  /** A 101: from `rest` on, the stream speaks another protocol and belongs to the owner. */
  onSwitch(head: ResponseHead, rest: Buffer, stream: ProxyStream): void
  onFailure(failure: ForwardFailure): void
  /** After `write()` answered false. */
  onRoom(): void
}

export interface ForwardOptions {
  readonly stream: ProxyStream
  readonly method: string
  readonly scanner: HeadScanner
  readonly owner: ForwardOwner
}

/** One request on one proxy stream, and the response to it. */
export class Forward implements StreamHandler, BodySink {
  readonly #proxy: ProxyStream
  readonly #method: string
  readonly #scanner: HeadScanner
  readonly #owner: ForwardOwner
  #head: ResponseHead | undefined
  #body: BodyTracker | undefined
  /** What has come of a body that may be the SDK's own. */
  #suspect: Buffer | undefined
  #isRequestDone = false
  #isOver = false
  /** Received bytes whose credit was not given back. */
  #owed = 0
  /** Those of them that do not go on: heads and chunk lines. */
  #consumed = 0
  /** The owner wants the body without its chunk lines. Set before the first `onBody`. */
  decodesBody = false
  /** Bytes received so far, heads included. */
  received = 0

  constructor({ stream, method, scanner, owner }: ForwardOptions) {
    this.#proxy = stream
    this.#method = method
    this.#scanner = scanner
    this.#owner = owner
    stream.stream.handler = this
  }

  /** Takes all bytes; false: wait for `onRoom`. */
  write(chunk: Buffer): boolean {
    return this.#isOver || this.#proxy.stream.write(chunk)
  }

  /** The request is written; without this the stream is not used again. */
  end(): void {
    this.#isRequestDone = true
  }

  /** Gives back credit for bytes of the body. */
  release(bytes: number): void {
    const due = bytes + this.#consumed
    if (this.#isOver || due === 0) return
    this.#consumed = 0
    this.#owed -= due
    this.#proxy.stream.release(due)
  }

  /** The owner has lost interest. */
  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#scanner.reset()
    this.#proxy.retire()
  }

  onData(chunk: Buffer): void {
    this.received += chunk.length
    this.#owed += chunk.length
    try {
      let at = 0
      while (at < chunk.length && !this.#isOver) {
        at = this.#body ? this.#readBody(this.#body, chunk, at) : this.#readHead(chunk, at)
      }
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      this.#fail('invalid')
    }
  }

  onEnd(): void {
    if (this.#head?.framing === UNTIL_CLOSE) this.#complete(false)
    else this.#fail(this.received === 0 && this.#proxy.isReused ? 'stale' : 'broken')
  }

  onDrain(): void {
    if (!this.#isOver) this.#owner.onRoom()
  }

  onClose(error: MuxadoError | undefined): void {
    const isLost = error !== undefined && error.reason !== 'stream-reset'
    this.#fail(isLost ? 'lost' : this.received === 0 && this.#proxy.isReused ? 'stale' : 'broken')
  }

  #readHead(chunk: Buffer, from: number): number {
    const end = this.#scanner.scan(chunk, from)
    this.#consumed += (end === -1 ? chunk.length : end) - from
    if (end === -1) {
      this.release(0)
      return chunk.length
    }
    const head = parseResponseHead(this.#scanner.take(), this.#method)
    if (head.status === 101) this.#switch(head, chunk.subarray(end))
    else if (head.status < 200) this.#owner.onInterim(head)
    else this.#startBody(head, end, chunk.length)
    return end
  }

  #startBody(head: ResponseHead, end: number, chunkLength: number): void {
    this.#head = head
    this.#body = new BodyTracker(head.framing)
    const isDone = this.#body.isDone
    if (!this.#proxy.isReused && resemblesDialFailure(head)) this.#suspect = Buffer.alloc(0)
    else this.#owner.onResponse(head, isDone || end < chunkLength)
    if (isDone) this.#complete(end === chunkLength)
  }

  #readBody(body: BodyTracker, chunk: Buffer, from: number): number {
    const content: Buffer[] | undefined = this.decodesBody ? [] : undefined
    const end = body.advance(chunk, from, content)
    if (content) this.#passContent(content, end - from)
    else this.#pass(end - from === chunk.length ? chunk : chunk.subarray(from, end))
    if (body.isDone) this.#complete(end === chunk.length)
    return end
  }

  #pass(part: Buffer): void {
    if (this.#suspect) this.#suspect = Buffer.concat([this.#suspect, part])
    else this.#owner.onBody(part)
  }

  #passContent(content: Buffer[], framedBytes: number): void {
    this.#consumed += framedBytes
    for (const part of content) {
      this.#consumed -= part.length
      this.#owner.onBody(part)
    }
    this.release(0)
  }

  #switch(head: ResponseHead, rest: Buffer): void {
    this.release(0)
    this.#isOver = true
    this.#owner.onSwitch(head, rest, this.#proxy)
  }

  /** `isClean`: the response ended where the received bytes end. */
  #complete(isClean: boolean): void {
    if (this.#isOver) return
    if (this.#suspect && isDialFailure(this.#suspect, this.#method)) {
      this.#fail('unreachable')
      return
    }
    this.#absolve()
    // The next exchange starts with a whole window; what the client has not taken yet is with its
    // socket, which is not asked for another request until then.
    if (this.#owed > 0) this.#proxy.stream.release(this.#owed)
    this.#isOver = true
    if (isClean && this.#isRequestDone && this.#head?.keepAlive) this.#proxy.release()
    else this.#proxy.retire()
    this.#owner.onComplete()
  }

  /** The response that was held back is the service's own. */
  #absolve(): void {
    const body = this.#suspect
    if (!this.#head || !body) return
    this.#suspect = undefined
    this.#owner.onResponse(this.#head, true)
    if (body.length > 0) this.#owner.onBody(body)
  }

  #fail(failure: ForwardFailure): void {
    if (this.#isOver) return
    this.abort()
    this.#owner.onFailure(failure)
  }
}
