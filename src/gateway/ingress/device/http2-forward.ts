import { type ClientHttp2Stream, constants, type IncomingHttpHeaders } from 'node:http2'
import type {
  NoStreamReason,
  Pace,
  ProxyStream,
  StreamClient,
  StreamWaiter,
} from '../../streams/proxy-stream.ts'
import { encodeChunk, lastChunk } from '../common/body-pipe.ts'
import type { DeviceRequest } from '../common/incoming-request.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { isGrpc } from '../common/local-reply.ts'
import type { BodySink } from '../common/request-body.ts'
import { CHUNKED, checkFields, HttpSyntaxError } from '../syntax/http-syntax.ts'
import { whenClosed } from '../syntax/http2-session.ts'
import { hasField, headersOf } from '../syntax/message-fields.ts'
import type { ResponseHead } from '../syntax/response-head.ts'
import { acquireFor, handBack } from './connection-login.ts'
import {
  type Forward,
  type ForwardFailure,
  type ForwardOptions,
  type ForwardOwner,
  isIdempotent,
  MAX_INTERIMS,
  MAX_REPEATED_BYTES,
  Refusals,
} from './forward.ts'
import { ForeignAnswer, readResponseHead, requestHeaders } from './http2-message.ts'
import { Http2Upstream, type UpstreamUser } from './http2-upstream.ts'

const { NGHTTP2_FLAG_END_STREAM, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants

/** As of a body in chunks. */
const TRAILER_LIMITS = { headBytes: 16_384, headFields: 64 }

/** The last is name and value in turn, which the types of Node leave out. */
type HeadEvent = [pseudo: IncomingHttpHeaders, flags: number, raw?: readonly string[]]

/** Runs code for events of Node. A bug there ends only the client's connection. */
export interface Guard {
  guard(step: () => void): void
}

export interface Http2ForwardOptions extends ForwardOptions {
  readonly client: StreamClient & Guard
  readonly scheme: 'http' | 'https'
  readonly context: IngressContext
}

/**
 * A request to a service that speaks HTTP/2. It goes out once more when the service says that it
 * has not looked at it (RFC 9113 8.7), or has closed a kept connection before it came.
 */
export class Http2Forward implements Forward, StreamWaiter, UpstreamUser, BodySink {
  readonly isToPeer = false
  readonly #options: Http2ForwardOptions
  readonly #owner: ForwardOwner
  #upstream: Http2Upstream | undefined
  #stream: ClientHttp2Stream | undefined
  #proxy: ProxyStream | undefined
  #wasSent = false
  #hasTriedAgain = false
  readonly #refusals = new Refusals()
  /** Bytes received on the connection before. */
  #receivedBefore = 0
  #foreign: ForeignAnswer | undefined
  #head: ResponseHead | undefined
  #trailers: readonly string[] = []
  #interims = 0
  #isRequestDone = false
  #isOver = false
  /** Content so far, and its waiting part. */
  #received = 0
  #owed = 0

  constructor(options: Http2ForwardOptions) {
    this.#options = options
    this.#owner = options.owner
  }

  get isOver(): boolean {
    return this.#isOver
  }

  get request(): DeviceRequest {
    return this.#options.request
  }

  get wasSent(): boolean {
    return this.#wasSent
  }

  get passedOn(): number {
    return this.#received - this.#owed
  }

  get heldBytes(): number {
    return this.#isOver ? 0 : (this.#stream?.readableLength ?? 0)
  }

  start(): void {
    acquireFor(this.request, this.#options.pool, this.#options.client, this)
  }

  onStream(proxy: ProxyStream): void {
    const { context, request, scheme } = this.#options
    const { content, body } = request
    const upstream = Http2Upstream.on(proxy, context)
    this.#upstream = upstream
    this.#proxy = proxy
    this.#receivedBefore = upstream.receivedBytes
    this.#wasSent = true
    // A gRPC call ends with its last message: waiting for trailers would end it later.
    const waitForTrailers = body !== undefined && !isGrpc(request)
    const options = { endStream: !content && !body, waitForTrailers }
    try {
      this.#listen(upstream.request(this, requestHeaders(request, scheme), options))
    } catch (error) {
      // A connection that is gone, or a head that Node does not send.
      context.log.debug({ err: error }, 'request not sent')
      this.#fail('broken')
      return
    }
    if (body) {
      if (!this.#hasTriedAgain) body.remember(MAX_REPEATED_BYTES)
      body.flowTo(this, 'content')
      return
    }
    if (content) {
      upstream.onContent(content.length)
      this.#stream?.end(content)
    }
    this.#onRequestDone()
  }

  onNoStream(reason: NoStreamReason): void {
    this.#fail(reason === 'session-over' ? 'lost' : reason)
  }

  get pace(): Pace {
    return this.#owner.pace
  }

  get isLasting(): boolean {
    return this.#owner.isLasting
  }

  evict(): void {
    this.#owner.evict()
  }

  /** A piece of the content. */
  write(chunk: Buffer): boolean {
    const stream = this.#stream
    if (this.#isOver || !stream || stream.closed || chunk.length === 0) return true
    this.#upstream?.onContent(chunk.length)
    return stream.write(chunk) && this.#hasRoom
  }

  end(): void {
    this.#stream?.end()
    this.#onRequestDone()
  }

  onRoom(): void {
    if (this.#isOver) return
    this.#owed = 0
    this.#stream?.resume()
  }

  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.request.body?.forget()
    this.#options.scanner.reset()
    if (this.#upstream) this.#upstream.cancel()
    else this.#options.pool.cancel(this)
  }

  onUpstreamEnd(failure: ForwardFailure): void {
    if (failure === 'broken') this.#onBroken(false)
    else if (failure !== 'unreachable' || !this.#waitsAgain(failure)) this.#fail(failure)
  }

  onForeign(chunk: Buffer): void {
    const { scanner } = this.#options
    this.#foreign ??= new ForeignAnswer(scanner)
    const failure = this.#foreign.read(chunk)
    if (!failure) return
    if (!this.#waitsAgain(failure)) this.#fail(failure)
  }

  onUpstreamRoom(): void {
    if (this.#hasRoom && this.#stream?.writableNeedDrain === false) this.request.body?.onRoom()
  }

  onReceived(): void {
    this.#owner.onHeld()
  }

  /** Node's own `drain` says that the session has taken it, which does not wait for the device. */
  get #hasRoom(): boolean {
    return this.#upstream?.hasRoom === true
  }

  #listen(stream: ClientHttp2Stream): void {
    this.#stream = stream
    stream.on('headers', (...event: HeadEvent) => this.#guard(() => this.#onInterim(event)))
    stream.on('response', (...event: HeadEvent) => this.#guard(() => this.#onResponse(event)))
    stream.on('trailers', (...[, , raw = []]: HeadEvent) => {
      this.#trailers = raw
    })
    stream.on('end', () => this.#guard(() => this.#onEnd(stream)))
    stream.on('drain', () => this.onUpstreamRoom())
    stream.on('wantTrailers', () => this.#guard(() => this.#sendTrailers(stream)))
    // The code of a stream reports its error; `close` follows.
    stream.on('error', () => {})
    whenClosed(stream, () => this.#guard(() => this.#onClose(stream)))
  }

  #onInterim([, , raw = []]: HeadEvent): void {
    if (this.#isOver) return
    this.request.body?.forget()
    this.#interims += 1
    if (this.#interims > MAX_INTERIMS) throw new HttpSyntaxError('too many interim responses')
    this.#owner.onInterim(this.#readHead(raw, false))
  }

  #onResponse([, flags, raw = []]: HeadEvent): void {
    const stream = this.#stream
    if (this.#isOver || !stream) return
    this.request.body?.forget()
    const isWhole = (flags & NGHTTP2_FLAG_END_STREAM) !== 0
    const head = this.#readHead(raw, isWhole)
    this.#head = head
    this.#proxy?.markHeard()
    // Data that came with the head is sent with it.
    const first = isWhole ? null : (stream.read() as Buffer | null)
    this.#owner.onResponse(head, isWhole || first !== null)
    if (this.#isOver) return
    if (isWhole) {
      this.#complete()
      return
    }
    stream.pause()
    stream.on('data', (chunk: Buffer) => this.#guard(() => this.#onContent(chunk)))
    if (first) this.#onContent(first)
    if (this.#owed === 0) stream.resume()
  }

  #readHead(raw: readonly string[], isWhole: boolean): ResponseHead {
    const { request, context } = this.#options
    // No other TE was passed on.
    const wantsTrailers = hasField(request.fields, 'te')
    return readResponseHead(raw, request.method, isWhole, { limits: context.limits, wantsTrailers })
  }

  #onContent(chunk: Buffer): void {
    if (this.#isOver) return
    this.#received += chunk.length
    this.#upstream?.onContent(chunk.length)
    const part = this.#head?.framing === CHUNKED ? encodeChunk(chunk) : chunk
    if (this.#owner.onBody(part, false) || this.#isOver) return
    this.#owed += chunk.length
    this.#stream?.pause()
  }

  #onEnd(stream: ClientHttp2Stream): void {
    // Node also reports the end of a stream that was reset without an error: then the content is incomplete.
    const isWhole = this.#upstream?.isWhole && stream.rstCode === NGHTTP2_NO_ERROR
    if (this.#isOver || stream !== this.#stream || !this.#head || !isWhole) return
    if (this.#head.framing === CHUNKED) {
      checkFields(this.#trailers, TRAILER_LIMITS)
      this.#owner.onBody(lastChunk(this.#trailers), false)
    }
    if (!this.#isOver) this.#complete()
  }

  #complete(): void {
    this.#isOver = true
    if (this.#isRequestDone && this.#head) {
      const head = this.#head
      this.#upstream?.release((stream) =>
        handBack(stream, this.request, head, this.#options.client),
      )
    } else this.#upstream?.cancel()
    this.#owner.onComplete()
  }

  #onClose(stream: ClientHttp2Stream): void {
    if (this.#isOver || stream !== this.#stream) return
    this.#onBroken(stream.rstCode === NGHTTP2_REFUSED_STREAM && !this.#head)
  }

  /** `wasRefused`: the service says that it has not looked at the request. */
  #onBroken(wasRefused: boolean): void {
    const isUnheard = this.#upstream?.receivedBytes === this.#receivedBefore
    const isStale = isUnheard && this.#proxy?.isReused === true
    if (isStale) this.#proxy?.owner.onStale()
    const { request } = this
    const canRepeat = !this.#hasTriedAgain && (!request.body || request.body.canRewind)
    if (canRepeat && (wasRefused || (isStale && isIdempotent(request)))) this.#tryAgain()
    else this.#fail(isStale ? 'stale' : 'broken')
  }

  /** A service that is busy has refused the connection: nothing of the request has reached it. */
  #waitsAgain(failure: ForwardFailure): boolean {
    const { pool, client, scanner } = this.#options
    const stream = this.#proxy
    if (!stream || stream.isReused || (failure !== 'unreachable' && failure !== 'broken'))
      return false
    const isBusy = pool.noteRefused(stream, 'unreached')
    const { body } = this.request
    if (!isBusy || (body && !body.canRewind) || !this.#refusals.note('unreached')) return false
    scanner.reset()
    this.#isRequestDone = false
    body?.rewind()
    this.#foreign = undefined
    this.#stream = undefined
    this.#upstream?.cancel()
    this.#upstream = undefined
    this.#wasSent = false
    pool.acquire(client, this)
    return true
  }

  #tryAgain(): void {
    this.#hasTriedAgain = true
    this.#isRequestDone = false
    this.request.body?.rewind()
    this.#stream = undefined
    this.#upstream?.cancel()
    this.#upstream = undefined
    this.#options.pool.acquireFresh(this.#options.client, this)
  }

  #onRequestDone(): void {
    this.#isRequestDone = true
  }

  #sendTrailers(stream: ClientHttp2Stream): void {
    const { body } = this.request
    stream.sendTrailers(headersOf(body?.trailers ?? []))
  }

  #fail(failure: ForwardFailure): void {
    if (this.#isOver) return
    this.abort()
    this.#owner.onFailure(failure)
  }

  /** An event of Node has no caller that catches errors. */
  #guard(step: () => void): void {
    this.#options.client.guard(() => {
      try {
        step()
      } catch (error) {
        if (!(error instanceof HttpSyntaxError)) throw error
        this.#fail('invalid')
      }
    })
  }
}
