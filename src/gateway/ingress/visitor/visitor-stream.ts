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
import type { VisitorPeerStreams } from '../device/peer-streams.ts'
import { Exchange } from '../exchange/exchange.ts'
import { joined } from '../syntax/body-tracker.ts'
import { TINY_BYTES } from '../syntax/flood-guard.ts'
import { HEAD_LIMITS, HeadScanner } from '../syntax/head-scanner.ts'
import { CHUNKED } from '../syntax/http-syntax.ts'
import { onEachPiece, whenClosed } from '../syntax/http2-session.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { Http2ResponseWriter, type WriterStream } from './http2-response-writer.ts'
import { countedHeadBytes, type Visitor } from './visitor.ts'

/** Memory that Node uses for each waiting piece, even a tiny piece, in bytes. */
const PIECE_BYTES = 256

const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR } = constants

/** `raw` alternates name and value. Node's types omit it. */
type TrailersEvent = [headers: IncomingHttpHeaders, flags: number, raw?: readonly string[]]

/** The connection, as its streams see it. */
export interface StreamConnection {
  readonly isStopping: boolean
  stopAccepting(): void
  /** Content is sent to the client. */
  onContent(bytes: number): void
  /** Content of a request was passed on; `waitingBytes` more have arrived and wait. */
  onBody(bytes: number, waitingBytes: number): void
  /** Called as soon as a stream ends, so that floods are noticed early. */
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
 * - Its exchange gets the client's events until `exchangeDone` or `abort`. Later events are dropped.
 * - `onStreamClose` of the connection is called once, when Node holds nothing more of the stream.
 * - A reset by the gateway does not count as a fault of the client.
 */
export class VisitorStream implements Client, BufferHolder, WriterStream, Corked {
  readonly stream: ServerHttp2Stream
  readonly visitor: Visitor
  readonly responseScanner = new HeadScanner(HEAD_LIMITS, 'response')
  readonly #connection: StreamConnection
  readonly #context: IngressContext
  readonly #claim: BufferClaim
  readonly #hasChunks: boolean
  /** Bytes of the head that the exchange keeps, if the head is long. */
  readonly #headBytes: number
  #exchange: Exchange | undefined
  #trailers: readonly string[] = []
  /** The client has not ended its request. */
  #isOpen: boolean
  #isAborted = false
  #writtenBytes = 0
  #receivedBytes = 0
  /** Tiny pieces after the first of a tick. They are passed on together at its end. */
  #gathered: Buffer[] = []
  #gatheredBytes = 0
  #passedTick = 0
  /** Pieces that have arrived and wait in Node. */
  #unreadPieces = 0
  /** Progress of the remaining data after the exchange. */
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
        // No other code counts pieces that arrive while the stream is paused.
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
    // The error is in the code of the stream; `close` follows.
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

  stopAccepting(): void {
    this.#connection.stopAccepting()
  }

  get logins(): LoginStreams {
    return this.visitor.logins
  }

  get hops(): VisitorPeerStreams {
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

  /** Whether the gateway waits for the client. */
  get isAwaited(): boolean {
    return this.#exchange ? this.#exchange.isAwaited : true
  }

  /** Whether the client may still send content. */
  get hasOpenBody(): boolean {
    return this.#isOpen
  }

  /** Whether the stream has switched to WebSocket. */
  get isSwitched(): boolean {
    return this.#exchange?.isSwitched === true
  }

  /**
   * Whether the client or its data ended the stream too early. A client may cancel a response that has begun,
   * as gRPC clients do.
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

  /** See `BufferHolder`: bytes that wait for the client or the device. */
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
    // Not `close()`: that would first end the stream, as if the response were complete.
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

  /** The client need not send data that is not read (RFC 9113 8.1). */
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

  /** Checks the deadlines; `now` is monotonic. */
  sweep(now: number): void {
    this.guard(() => {
      this.countHeld()
      // Node may have lost the stream: Node 20 does not close the streams of some broken connections.
      if (this.isGone) this.stream.destroy()
      else if (this.#exchange) this.#exchange.sweep(now)
      else this.#sweepRest(now)
    })
  }

  /**
   * Aborts a client that stops reading, so that it cannot mistake a partial response for the complete
   * response.
   */
  #sweepRest(now: number): void {
    this.#watch ??= new ProgressWatch(this.#context.limits)
    const progress = { movedBytes: -this.unreadBytes, awaitedBodyBytes: undefined }
    if (this.#watch.check(progress, now)) this.abort()
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
    if (this.#exchange.read(bytes, 0) === 0) {
      // WebSocket frames before the device has accepted the switch.
      this.pause()
      this.stream.unshift(chunk)
      this.#receivedBytes -= chunk.length
    }
    this.countHeld()
  }

  #onEnd(): void {
    this.#isOpen = false
    this.#passGathered()
    // Node also reports an end if a stream was reset without an error. The content is incomplete then.
    if (this.stream.aborted || this.stream.closed) return
    if (this.isSwitched) this.#exchange?.onClientEnd()
    else if (this.#hasChunks) this.#exchange?.read(lastChunk(this.#trailers), 0)
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
