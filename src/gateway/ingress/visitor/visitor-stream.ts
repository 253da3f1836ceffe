import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2'
import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import { type BufferAccount, BufferClaim, type BufferHolder } from '../../streams/buffer-account.ts'
import type { LoginStreams } from '../../streams/login-streams.ts'
import { encodeChunk, lastChunk } from '../common/body-pipe.ts'
import type { Client, ResponseOwner, ResponseWriter } from '../common/client.ts'
import type { Corked } from '../common/client-socket.ts'
import type { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IncomingRequest } from '../common/incoming-request.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import type { IngressListener } from '../common/ingress-listener.ts'
import { ProgressWatch } from '../common/progress-watch.ts'
import type { VisitorHops } from '../device/visitor-hops.ts'
import { Exchange } from '../exchange/exchange.ts'
import { joined } from '../syntax/body-tracker.ts'
import { TINY_BYTES } from '../syntax/flood-guard.ts'
import { HEAD_LIMITS, HeadScanner } from '../syntax/head-scanner.ts'
import { CHUNKED } from '../syntax/http-syntax.ts'
import { onEachPiece, whenClosed } from '../syntax/http2-session.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { Http2ResponseWriter, type WriterStream } from './http2-response-writer.ts'
import { countedHeadBytes, type Visitor } from './visitor.ts'

/** Of memory that Node takes for a piece, however small, while it waits. */
const PIECE_BYTES = 256

const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR } = constants

/** The last is name and value in turn, which the types of Node leave out. */
type TrailersEvent = [headers: IncomingHttpHeaders, flags: number, raw?: readonly string[]]

/** The connection, as its streams know it. */
export interface StreamConnection {
  readonly isStopping: boolean
  leave(): void
  /** Content that the client gets. */
  onContent(bytes: number): void
  /** Content of a request has gone on; other content of it has come and waits. */
  onBody(bytes: number, waitingBytes: number): void
  /** At once, for what is done about floods. */
  countEnd(isBroken: boolean, visitor: Visitor): void
  onStreamClose(stream: VisitorStream): void
}

export interface VisitorStreamOptions {
  readonly stream: ServerHttp2Stream
  readonly connection: StreamConnection
  readonly visitor: Visitor
  readonly context: IngressContext
  readonly head: RequestHead
}

/**
 * One stream of a visitor's connection: one request and its response.
 *
 * INVARIANTS
 * - Its exchange hears of the client until `exchangeDone` or `abort`; what comes then is dropped.
 * - `onStreamClose` of the connection follows once, when nothing of it is left with Node.
 * - What it resets itself is no fault of the client.
 */
export class VisitorStream implements Client, BufferHolder, WriterStream, Corked {
  readonly stream: ServerHttp2Stream
  readonly visitor: Visitor
  readonly responseScanner = new HeadScanner(HEAD_LIMITS, 'response')
  readonly #connection: StreamConnection
  readonly #context: IngressContext
  readonly #claim: BufferClaim
  readonly #hasChunks: boolean
  /** What the exchange keeps of its head, when that is long. */
  readonly #headBytes: number
  #exchange: Exchange | undefined
  #trailers: readonly string[] = []
  /** The client sent no end of its request so far. */
  #isOpen: boolean
  #isAborted = false
  #writtenBytes = 0
  #receivedBytes = 0
  /** Tiny pieces behind the first of a tick: they go on together when it ends. */
  #gathered: Buffer[] = []
  #gatheredBytes = 0
  #passedTick = 0
  /** Pieces that have arrived and wait in Node. */
  #unreadPieces = 0
  /** Of what is left when the exchange is over. */
  #watch: ProgressWatch | undefined

  constructor({ stream, connection, visitor, context, head }: VisitorStreamOptions) {
    this.stream = stream
    this.#connection = connection
    this.visitor = visitor
    this.#context = context
    this.#claim = new BufferClaim(this, context.buffers)
    this.#headBytes = countedHeadBytes(head.fields.reduce((sum, { length }) => sum + length, 0))
    this.#hasChunks = head.framing === CHUNKED
    this.#isOpen = !stream.endAfterHeaders || head.upgrade !== undefined
    this.#exchange = new Exchange(context, this, head)
  }

  /** Begins the exchange. */
  start(): void {
    const { stream } = this
    if (this.#isOpen) {
      onEachPiece(stream, () => {
        this.#unreadPieces += 1
        // Nobody else counts what comes meanwhile.
        if (stream.isPaused()) this.guard(() => this.countHeld())
      })
      stream.on('trailers', (...[, , raw = []]: TrailersEvent) => {
        this.#trailers = raw
      })
      stream.on('data', (chunk: Buffer) => this.guard(() => this.#onData(chunk)))
      stream.on('end', () => this.guard(() => this.#onEnd()))
    } else {
      stream.resume()
    }
    stream.on('drain', () => this.guard(() => this.#onDrain()))
    // The code of a stream reports its error; `close` follows.
    stream.on('error', () => {})
    stream.once('close', () => this.#connection.countEnd(this.isBroken, this.visitor))
    whenClosed(stream, () => this.guard(() => this.#onClose()))
    this.guard(() => {
      this.#exchange?.start()
      this.countHeld()
    })
  }

  get listener(): IngressListener {
    return this.visitor.listener
  }

  get ip(): string {
    return this.visitor.ip
  }

  get address(): string {
    return this.visitor.address
  }

  get network(): string {
    return this.visitor.network
  }

  get isStopping(): boolean {
    return this.#connection.isStopping
  }

  leave(): void {
    this.#connection.leave()
  }

  get logins(): LoginStreams {
    return this.visitor.logins
  }

  get hops(): VisitorHops {
    return this.visitor.hops
  }

  get facts(): Connection {
    return this.visitor.facts
  }

  isAdmitted(endpoint: Endpoint): boolean {
    return this.visitor.isAdmitted(endpoint)
  }

  admit(endpoint: Endpoint): void {
    this.visitor.admit(endpoint)
  }

  /** True while it is the client's turn. */
  get isAwaited(): boolean {
    return this.#exchange ? this.#exchange.isAwaited : true
  }

  /** True while the client may send content. */
  get hasOpenBody(): boolean {
    return this.#isOpen
  }

  /** True when it speaks WebSocket by now. */
  get isSwitched(): boolean {
    return this.#exchange?.isSwitched === true
  }

  /**
   * True when the client, or what it sent, has ended it before its time. To give up a response that
   * has begun is the right of those who waited for it, as calls of gRPC are ended.
   */
  get isBroken(): boolean {
    const { aborted, rstCode, headersSent } = this.stream
    if (this.#isAborted || (headersSent && rstCode === NGHTTP2_CANCEL)) return false
    return aborted || rstCode !== NGHTTP2_NO_ERROR
  }

  get isGone(): boolean {
    return this.stream.closed || this.stream.destroyed
  }

  pause(): void {
    this.stream.pause()
  }

  resume(): void {
    this.stream.resume()
  }

  get unreadBytes(): number {
    return this.stream.writableLength
  }

  get takenBytes(): number {
    return this.#writtenBytes - this.unreadBytes
  }

  /** See `BufferHolder`: what waits for the client, and for the device. */
  get heldBytes(): number {
    const exchangeBytes = this.#exchange ? this.#headBytes + this.#exchange.heldBytes : 0
    return (
      this.unreadBytes +
      this.stream.readableLength +
      this.#unreadPieces * PIECE_BYTES +
      this.#gatheredBytes +
      this.responseScanner.heldBytes +
      exchangeBytes
    )
  }

  /** See `BufferHolder`. */
  get movedBytes(): number {
    return this.takenBytes + this.#receivedBytes
  }

  /** See `BufferHolder`. */
  onOverBudget(): void {
    this.#exchange?.countCut()
    this.abort()
  }

  charge(account: BufferAccount): void {
    this.#claim.moveTo(account, this.#context.now)
  }

  countHeld(): void {
    this.#claim.update(this.#context.now)
  }

  writerFor(
    request: IncomingRequest,
    traffic: ExchangeTraffic,
    owner: ResponseOwner,
  ): ResponseWriter {
    return new Http2ResponseWriter(this, request, traffic, owner)
  }

  sayContinue(): void {
    if (!this.isGone) this.stream.additionalHeaders({ ':status': 100 })
  }

  write(chunk: Buffer): boolean {
    if (this.isGone) return true
    this.#writtenBytes += chunk.length
    this.#connection.onContent(chunk.length)
    const hasRoom = this.stream.write(chunk)
    this.countHeld()
    return hasRoom
  }

  end(): void {
    this.stream.end()
  }

  abort(): void {
    if (this.isGone) return
    this.#isAborted = true
    // Not `close()`: that would end the stream first, as if the response were whole.
    this.stream.destroy(new Error('broken off'))
  }

  refuse(): void {
    this.abort()
  }

  switched(): void {
    this.resume()
  }

  exchangeDone(): void {
    this.#exchange = undefined
    if (this.isGone) return
    if (this.stream.writableFinished) this.#refuseRest()
    else this.stream.once('finish', () => this.#refuseRest())
  }

  /** The client need not send what nobody reads (RFC 9113 8.1). */
  #refuseRest(): void {
    if (this.#isOpen && !this.isGone) this.stream.close(NGHTTP2_NO_ERROR)
  }

  guard(step: () => void): void {
    try {
      step()
    } catch (err) {
      this.#context.log.error({ err }, 'stream of a client failed')
      this.abort()
    }
  }

  /** Looks at the deadlines; `now` is monotonic. */
  sweep(now: number): void {
    this.guard(() => {
      this.countHeld()
      // Node may have lost it: on Node 20 nothing closes the streams of some broken connections.
      if (this.isGone) this.stream.destroy()
      else if (this.#exchange) this.#exchange.sweep(now)
      else this.#sweepRest(now)
    })
  }

  /** A client that takes nothing of the rest must not take what it has for all there is. */
  #sweepRest(now: number): void {
    this.#watch ??= new ProgressWatch(this.#context.limits)
    const progress = { movedBytes: -this.unreadBytes, awaitedBodyBytes: undefined }
    if (this.#watch.look(progress, now)) this.abort()
  }

  #onData(chunk: Buffer): void {
    this.#receivedBytes += chunk.length
    this.#unreadPieces = this.stream.readableLength === 0 ? 0 : this.#unreadPieces - 1
    if (!this.#exchange) return
    const { coalescer } = this.#context
    const tick = coalescer.tick()
    if (this.#passedTick === tick && chunk.length < TINY_BYTES) {
      if (this.#gathered.length === 0) coalescer.corked(this)
      this.#gathered.push(chunk)
      this.#gatheredBytes += chunk.length
      return
    }
    this.#passedTick = tick
    this.#passGathered()
    this.#pass(chunk)
    this.#connection.onBody(chunk.length, this.stream.readableLength)
  }

  /** See `Corked`: the tick has ended. */
  uncork(): void {
    this.guard(() => this.#passGathered())
  }

  #passGathered(): void {
    if (this.#gathered.length === 0) return
    const chunk = joined(this.#gathered)
    this.#gathered = []
    this.#gatheredBytes = 0
    this.#pass(chunk)
  }

  #pass(chunk: Buffer): void {
    if (!this.#exchange) return
    const bytes = this.#hasChunks ? encodeChunk(chunk) : chunk
    if (this.#exchange.take(bytes, 0) === 0) {
      // Frames of a WebSocket that the device has not agreed to.
      this.pause()
      this.stream.unshift(chunk)
      this.#receivedBytes -= chunk.length
    }
    this.countHeld()
  }

  #onEnd(): void {
    this.#isOpen = false
    this.#passGathered()
    // Node also reports the end of a stream that was reset without an error: then the content is incomplete.
    if (this.stream.aborted || this.stream.closed) return
    if (this.isSwitched) this.#exchange?.onClientEnd()
    else if (this.#hasChunks) this.#exchange?.take(lastChunk(this.#trailers), 0)
  }

  #onDrain(): void {
    this.countHeld()
    this.#exchange?.onClientRoom()
  }

  #onClose(): void {
    this.#claim.close()
    const exchange = this.#exchange
    this.#exchange = undefined
    exchange?.onClientClose()
    this.#connection.onStreamClose(this)
  }
}
