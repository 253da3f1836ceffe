import type { MuxadoError } from '../../../muxado/error-code.ts'
import type { StreamHandler } from '../../../muxado/stream.ts'
import type { NoStreamReason, Pace, ProxyStream, StreamWaiter } from '../../streams/proxy-stream.ts'
import type { RefusalKind } from '../../streams/service-connections.ts'
import { type DeviceRequest, encodeHttp1 } from '../common/incoming-request.ts'
import type { BodySink } from '../common/request-body.ts'
import { BodyTracker } from '../syntax/body-tracker.ts'
import { CHUNKED, HttpSyntaxError, UNTIL_CLOSE } from '../syntax/http-syntax.ts'
import { beginsLikeHttp1, parseResponseHead, type ResponseHead } from '../syntax/response-head.ts'
import { acquireFor, handBack } from './connection-login.ts'
import {
  dialFailureIn,
  type Forward,
  type ForwardFailure,
  type ForwardOptions,
  type ForwardOwner,
  isIdempotent,
  MAX_INTERIMS,
  MAX_REPEATED_BYTES,
  Refusals,
  resemblesDialFailure,
} from './forward.ts'

const NOTHING = Buffer.alloc(0)

const REQUEST_TIMEOUT = 408

/**
 * A request to a service with HTTP/1.1. If the service has just closed the kept connection, or ends it with a
 * 408 after a long wait, a repeatable request is sent once more on a new connection (RFC 9112 9.3.1, RFC 9110
 * 15.5.9).
 */
export class Http1Forward implements Forward, StreamWaiter, StreamHandler, BodySink {
  readonly isToPeer: boolean = false
  readonly readsLent = true
  /** Data is passed on at once. The owner holds waiting data. */
  readonly heldBytes = 0
  readonly #options: ForwardOptions
  readonly #owner: ForwardOwner
  #proxy: ProxyStream | undefined
  #wasSent = false
  readonly #refusals = new Refusals()
  /** It leaves with the first bytes of the body: two writes are 40 ms apart at the SDK's socket. */
  #unsentHead: Buffer | undefined
  #head: ResponseHead | undefined
  #body: BodyTracker | undefined
  /** The head waits for the first chunk that has come with it: it may be no HTTP. */
  #isHeadHeld = false
  /** Start of a body that may come from the SDK itself. */
  #heldBack: Buffer | undefined
  #interims = 0
  #isRequestDone = false
  #isOver = false
  /** Bytes received so far, heads included. */
  #received = 0
  /** Received bytes that wait, so that the device has not got their credit back. */
  #owed = 0

  constructor(options: ForwardOptions) {
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

  start(): void {
    const { pool, client, isAlone, accepted } = this.#options
    if (isAlone || accepted) pool.acquireFresh(client, this)
    else acquireFor(this.request, pool, client, this)
  }

  onStream(stream: ProxyStream): void {
    this.#proxy = stream
    this.#wasSent = true
    stream.stream.handler = this
    const { request, accepted } = this.#options
    if (accepted) {
      this.#switch(accepted, NOTHING)
      return
    }
    // The service may refuse a new stream. Requests to another node are not repeated here.
    if (!this.isToPeer && (!stream.isReused || isIdempotent(request)))
      request.body?.remember(MAX_REPEATED_BYTES)
    this.#unsentHead = encodeHttp1(request)
    this.sendBody()
    // A body that has come with the head is about to follow.
    if (!request.body) this.#sendHead()
    else if (this.#unsentHead) setImmediate(() => this.#sendHead())
  }

  #sendHead(): void {
    if (this.#unsentHead) this.write(NOTHING)
  }

  protected sendBody(): void {
    const { body } = this.request
    if (body) body.flowTo(this)
    else this.end()
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

  /** Accepts all bytes of the body; false: wait for room. */
  write(chunk: Buffer): boolean {
    const head = this.#unsentHead
    this.#unsentHead = undefined
    const isAlone = !head || chunk.length === 0
    const bytes = isAlone ? (head ?? chunk) : Buffer.concat([head, chunk])
    return this.#isOver || this.#proxy?.stream.write(bytes) === true
  }

  /** The request is written; without this the stream is not used again. */
  end(): void {
    this.#isRequestDone = true
  }

  onRoom(): void {
    if (this.#isOver || this.#owed === 0) return
    const bytes = this.#owed
    this.#owed = 0
    this.#proxy?.stream.release(bytes)
  }

  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#options.request.body?.forget()
    this.#options.scanner.reset()
    if (this.#proxy) this.#proxy.retire()
    else this.#options.pool.cancel(this)
  }

  onData(chunk: Buffer, isLent: boolean): void {
    this.#received += chunk.length
    const proxy = this.#proxy
    try {
      for (let at = 0; at < chunk.length && !this.#isOver && this.#proxy === proxy; ) {
        at = this.#body ? this.#readBody(this.#body, chunk, at, isLent) : this.#readHead(chunk, at)
      }
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      this.#fail('invalid')
    }
  }

  onEnd(): void {
    if (this.#head?.framing === UNTIL_CLOSE) this.#complete(false)
    else this.#onBroken()
  }

  onDrain(): void {
    this.#options.request.body?.onRoom()
  }

  onClose(error: MuxadoError | undefined): void {
    // A body that lasts until the end has not ended with a reset.
    if (error && error.reason !== 'stream-reset') this.#fail('lost')
    else this.#onBroken()
  }

  #onBroken(): void {
    const isStale = this.#received === 0 && this.#proxy?.isReused === true
    if (!isStale) {
      if (this.#received > 0 || !this.#waitsAgain('closed')) this.#fail('broken')
      return
    }
    this.#proxy?.owner.onStale()
    if (this.#mayRepeat()) this.#repeat()
    else this.#fail(this.isToPeer ? 'broken' : 'stale')
  }

  /** Called for a reused stream. The next stream is new, so there is at most one repetition. */
  #mayRepeat(): boolean {
    const { request } = this.#options
    return isIdempotent(request) && (!request.body || request.body.canRewind)
  }

  /**
   * The service refused the connection. If it is busy, the request waits for another one, provided it did not
   * reach the service or may be repeated.
   */
  #waitsAgain(kind: RefusalKind): boolean {
    const { pool, client, request, isAlone } = this.#options
    const proxy = this.#proxy
    if (!proxy || proxy.isReused || this.isToPeer || this.#isOver) return false
    const isSafe = kind === 'unreached' || isIdempotent(request)
    const mayRepeat = isSafe && (!request.body || request.body.canRewind)
    // It may be the request that the service closes it for: only its repetition tells.
    if (kind === 'closed' && !mayRepeat) return false
    const isBusy = pool.noteRefused(proxy, kind)
    if (!isBusy || !mayRepeat || !this.#refusals.note(kind)) {
      if (this.#refusals.wasClosed) pool.noteClosed(false)
      return false
    }
    this.#beginAgain()
    this.#wasSent = kind === 'closed'
    if (isAlone) pool.acquireFresh(client, this)
    else pool.acquire(client, this)
    return true
  }

  #repeat(): void {
    const { pool, client } = this.#options
    this.#beginAgain()
    pool.acquireFresh(client, this)
  }

  #beginAgain(): void {
    const { request, scanner } = this.#options
    request.body?.rewind()
    this.#head = undefined
    this.#body = undefined
    this.#heldBack = undefined
    this.#unsentHead = undefined
    this.#isRequestDone = false
    this.#received = 0
    this.#owed = 0
    scanner.reset()
    const proxy = this.#proxy
    this.#proxy = undefined
    proxy?.retire()
  }

  #readHead(chunk: Buffer, from: number): number {
    const { scanner, request, pool } = this.#options
    const end = scanner.scan(chunk, from, pool)
    this.#owed += (end === -1 ? chunk.length : end) - from
    if (end === -1) {
      // A service that speaks first, and no HTTP, waits for an answer in its turn.
      const isFirst = this.#received === chunk.length
      if (isFirst && !beginsLikeHttp1(chunk)) throw new HttpSyntaxError('no status line')
      this.onRoom()
      return chunk.length
    }
    const head = parseResponseHead(scanner.takeHead(), request.method)
    if (this.#isIdleTimeout(head) && this.#mayRepeat()) {
      this.#proxy?.owner.onStale()
      this.#repeat()
      return chunk.length
    }
    if (!this.#mayBeDialFailure(head)) {
      request.body?.forget()
      this.#proxy?.markHeard()
      if (this.#refusals.wasClosed) this.#options.pool.noteClosed(true)
    }
    if (head.status === 101) {
      // The rest of the body would stand among the bytes of the other protocol (RFC 9110 7.8).
      if (!this.#isRequestDone) throw new HttpSyntaxError('a switch before the request has ended')
      this.#switch(head, Buffer.from(chunk.subarray(end)))
    } else if (head.status < 200) this.passInterim(head)
    else this.#startBody(head, end, chunk)
    return end
  }

  /** True for the last words on a kept connection: the service says that it has got no request. */
  #isIdleTimeout({ status, keepAlive }: ResponseHead): boolean {
    const isFirst = this.#interims === 0 && this.#proxy?.isReused === true
    return status === REQUEST_TIMEOUT && !keepAlive && isFirst && !this.isToPeer
  }

  protected passInterim(head: ResponseHead): void {
    this.#interims += 1
    if (this.#interims > MAX_INTERIMS) throw new HttpSyntaxError('too many interim responses')
    this.#owner.onInterim(head)
  }

  #startBody(head: ResponseHead, end: number, chunk: Buffer): void {
    this.#head = head
    this.#body = new BodyTracker(head.framing, 'response')
    const isDone = this.#body.isDone
    // Our agent adds the reason also to a response to HEAD, because it does not know the method.
    const isSaid = this.#options.request.method === 'HEAD'
    // A response to HEAD ends here, so its bytes are read before the call is over.
    if (this.#mayBeDialFailure(head)) this.#heldBack = isSaid ? chunk.subarray(end) : NOTHING
    else if (head.framing === CHUNKED && end < chunk.length) this.#isHeadHeld = true
    else this.#owner.onResponse(head, isDone || end < chunk.length)
    if (isDone) this.#complete(end === chunk.length)
  }

  #mayBeDialFailure(head: ResponseHead): boolean {
    return !this.#proxy?.isReused && !this.isToPeer && resemblesDialFailure(head)
  }

  #readBody(body: BodyTracker, chunk: Buffer, from: number, isLent: boolean): number {
    const { end, bytes } = body.passOn(chunk, from)
    this.#owed += end - from
    if (this.#isHeadHeld && this.#head) {
      this.#isHeadHeld = false
      this.#owner.onResponse(this.#head, bytes.length > 0)
      if (this.#isOver) return end
    }
    if (this.#heldBack) this.#heldBack = Buffer.concat([this.#heldBack, bytes])
    else if (bytes.length === 0 || this.#owner.onBody(bytes, isLent)) this.onRoom()
    if (body.isDone) this.#complete(end === chunk.length)
    return end
  }

  #switch(head: ResponseHead, rest: Buffer): void {
    const proxy = this.#proxy
    if (!proxy) return
    this.onRoom()
    this.#isOver = true
    this.#owner.onSwitch(head, rest, proxy)
  }

  /** `isClean`: the response ended where the received bytes end. */
  #complete(isClean: boolean): void {
    if (this.#isOver) return
    const dialFailure =
      this.#heldBack && dialFailureIn(this.#heldBack, this.#options.request.method)
    if (dialFailure) {
      const isRefusal = dialFailure === 'unreachable' || dialFailure === 'broken'
      if (!isRefusal || !this.#waitsAgain('unreached')) this.#fail(dialFailure)
      return
    }
    this.#passHeldBack()
    if (this.#isOver) return
    // The next exchange starts with a full window. Unread data is in the client's socket, which requests
    // nothing more until it is sent.
    this.onRoom()
    this.#isOver = true
    const isKept = isClean && this.#isRequestDone && !this.#options.isAlone
    const { request, client } = this.#options
    if (isKept && this.#head?.keepAlive && this.#proxy) {
      const { keepMs } = this.#head
      if (handBack(this.#proxy, request, this.#head, client)) this.#proxy.release(keepMs)
    } else this.#proxy?.retire()
    this.#owner.onComplete()
  }

  /** The response that was held back is the service's own. */
  #passHeldBack(): void {
    const body = this.#heldBack
    if (!this.#head || !body) return
    this.#heldBack = undefined
    this.#owner.onResponse(this.#head, true)
    if (body.length > 0 && !this.#isOver) this.#owner.onBody(body, true)
  }

  #fail(failure: ForwardFailure): void {
    if (this.#isOver) return
    this.abort()
    this.#owner.onFailure(failure)
  }
}
