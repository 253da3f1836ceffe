import type { ConnectionStage } from '../../../base/net/connection-shares.ts'
import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import { type BufferAccount, BufferClaim, type BufferHolder } from '../../streams/buffer-account.ts'
import type { LoginStreams } from '../../streams/login-streams.ts'
import type { Client, ResponseOwner, ResponseWriter } from '../common/client.ts'
import type { ClientSocket } from '../common/client-socket.ts'
import { ConnectionFacts } from '../common/connection-facts.ts'
import { type EdgeErrorCode, edgeError, FAULT_CODES } from '../common/edge-error.ts'
import { textReply } from '../common/error-reply.ts'
import type { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IncomingRequest } from '../common/incoming-request.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import type { IngressListener, RefusalReason } from '../common/ingress-listener.ts'
import { encodeReply } from '../common/local-reply.ts'
import { fromPeer, headLimits } from '../device/peer-forward.ts'
import type { VisitorPeerStreams } from '../device/peer-streams.ts'
import { Exchange } from '../exchange/exchange.ts'
import { TINY_BYTES } from '../syntax/flood-guard.ts'
import { HEAD_LIMITS, HeadScanner } from '../syntax/head-scanner.ts'
import { HttpSyntaxError } from '../syntax/http-syntax.ts'
import { parseRequestHead, type RequestHead } from '../syntax/request-head.ts'
import { ClientOutput, LingeringClose } from './client-output.ts'
import { Http1ResponseWriter } from './http1-response-writer.ts'
import { type Admitted, countedHeadBytes, type IngressConnection, Visitor } from './visitor.ts'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n')

/** Whether a client begins HTTP/2 without TLS, by prior knowledge (RFC 9113 3.3). */
function isHttp2Preface(chunk: Buffer, at: number): boolean {
  return chunk.subarray(at, at + PREFACE.length).equals(PREFACE)
}

/** Builds a frame of stream 0, the connection: nine bytes of header, then the payload (RFC 9113 4.1). */
function frame(type: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.writeUInt8(type, 3)
  return Buffer.concat([head, payload])
}

const SETTINGS = 4
const GOAWAY = 7
const NO_STREAM = [0, 0, 0, 0]
const ERROR = [0, 0, 0, 0xd]
const REASON = 'This port speaks HTTP/1.1. Use the HTTPS port for HTTP/2.'

/** Answer to such a client: SETTINGS, which must come first, then a GOAWAY that asks for HTTP/1.1. */
const HTTP_1_1_REQUIRED: Buffer = Buffer.concat([
  frame(SETTINGS, Buffer.alloc(0)),
  frame(GOAWAY, Buffer.concat([Buffer.from([...NO_STREAM, ...ERROR]), Buffer.from(REASON)])),
])

const CONTINUE_HEAD = Buffer.from('HTTP/1.1 100 Continue\r\n\r\n')

/** Marks a deadline that the next sweep sets, so that the sweep after it closes the connection. */
const AT_NEXT_SWEEP = Number.POSITIVE_INFINITY

/** Time without a request after which a connection keeps no fields. */
const FORGET_MS = 5_000

export interface ClientConnectionOptions {
  readonly socket: ClientSocket
  readonly listener: IngressListener
  readonly context: IngressContext
  /** Policy verdict from before there was HTTP on the connection. */
  readonly admitted?: Admitted | undefined
  onClose(connection: ClientConnection): void
}

/**
 * A client's HTTP/1 connection. Requests are handled one after the other: each is answered before the next is
 * read (RFC 9112 9.3.2). The socket must allow half-open connections.
 */
export class ClientConnection implements Client, IngressConnection, BufferHolder {
  readonly responseScanner = new HeadScanner(HEAD_LIMITS, 'response')
  readonly #socket: ClientSocket
  readonly #context: IngressContext
  readonly #onClose: (connection: ClientConnection) => void
  readonly #scanner: HeadScanner
  readonly #output: ClientOutput
  readonly #claim: BufferClaim
  /** Value of `takenBytes` when the exchange began. */
  #takenBefore = 0
  #isStopping = false
  readonly #peer: Visitor
  /** Sender of the last request: the peer, or a client behind it. */
  #visitor: Visitor
  #exchange: Exchange | undefined
  /** Bytes of the head that the exchange keeps, if the head is long. */
  #headBytes = 0
  /** Bytes of later requests, while a response is due. */
  #held: Buffer | undefined
  #isReading = false
  /** See `SharedReads`. */
  #isLent = false
  /** Reading is paused until the next step resumes it. */
  #isPaused = false
  /**
   * Set while reading is paused because the client sent more tiny chunks than its share. Gives up its turn.
   */
  #giveUpTurn: (() => void) | undefined
  /** Set with the last answer; later data is dropped. */
  #closing: LingeringClose | undefined
  /** Time to close at, monotonic. An exchange and an upgrade have their own deadlines. */
  #deadline: number
  #idleSince: number

  constructor({ socket, listener, context, admitted, onClose }: ClientConnectionOptions) {
    this.#socket = socket
    this.#context = context
    this.#onClose = onClose
    const openedAt = context.clock.now()
    this.#peer = Visitor.at(socket, {
      listener,
      facts: () =>
        admitted?.facts ??
        listener.internal?.asker.connection ??
        new ConnectionFacts(socket, openedAt, context.addresses),
      admittedBy: admitted?.by,
    })
    this.#visitor = this.#peer
    if (admitted?.endpoint) this.admit(admitted.endpoint)
    this.#output = new ClientOutput(socket, context.coalescer, () => this.countHeld())
    this.#claim = new BufferClaim(this, context.buffers)
    this.#scanner = new HeadScanner(headLimits(context.limits, listener.peer !== undefined))
    this.#deadline = context.now + context.limits.headMs
    this.#idleSince = context.now
  }

  /** Begins to read. */
  open(): void {
    const socket = this.#socket
    socket.setNoDelay(true)
    this.#isLent = this.#context.reads.begin(socket, (chunk) => {
      if (!this.#closing) this.#read(chunk, this.#isLent)
    })
    socket.on('drain', () => this.guard(() => this.#onDrain()))
    socket.on('end', () => this.guard(() => this.#onEnd()))
    // Client errors need no handling: `close` follows.
    socket.on('error', () => {})
    socket.on('close', () => {
      this.#giveUpTurn?.()
      this.#claim.close()
      this.#onClose(this)
      this.guard(() => this.#exchange?.onClientClose())
      this.#visitor.close()
      this.#peer.close()
    })
  }

  /** See `Client`. */
  get isStopping(): boolean {
    return this.#isStopping
  }

  /**
   * Closes after the current response. A client without one, or accepted and not read yet, may already have
   * sent a request. It has until the second sweep from now to show it.
   */
  stop(): void {
    this.#isStopping = true
    if (this.#exchange?.isSwitched) this.abort()
    else if (!this.#exchange && !this.#closing) this.#deadline = AT_NEXT_SWEEP
  }

  /** See `Client`. */
  stopAccepting(): void {
    this.#isStopping = true
  }

  /** Closes at once. A client that misses data sees a reset. */
  destroy(): void {
    if (this.#socket.writableFinished) this.#socket.destroy()
    else this.abort()
  }

  /** After an exchange, the client may still have to read the rest of the response. */
  get stage(): ConnectionStage {
    if (this.#exchange) return this.#exchange.isAwaited ? 'awaited' : 'busy'
    return this.#socket.writableLength > 0 ? 'awaited' : 'idle'
  }

  /** Time of the last sweep before it became idle, monotonic. */
  get idleSince(): number {
    return this.#idleSince
  }

  yieldPlace(): void {
    if (this.stage === 'idle') this.#socket.destroy()
    else this.abort()
  }

  /** Checks the deadlines; `now` is monotonic. */
  sweep(now: number): void {
    this.guard(() => {
      this.countHeld()
      if (!this.#exchange && now - this.#idleSince > FORGET_MS) this.#forget()
      if (this.#closing) this.#linger(this.#closing, now)
      else if (this.#exchange) this.#exchange.sweep(now)
      // Not by the clock: in a busy process the time may be over before the sockets were read.
      else if (this.#deadline === AT_NEXT_SWEEP) this.#deadline = now
      else if (now > this.#deadline) this.#onDeadline()
    })
  }

  /** An idle connection keeps no fields of its last messages. */
  #forget(): void {
    this.#scanner.forget()
    this.responseScanner.forget()
  }

  /** Does nothing: in HTTP/1, data is either a request or ends the connection. */
  checkFlood(): void {}

  pause(): void {
    this.#isPaused = true
    this.#socket.pause()
  }

  resume(): void {
    this.#isPaused = false
    if (!this.#giveUpTurn) this.#socket.resume()
  }

  get listener(): IngressListener {
    return this.#visitor.listener
  }

  get ip(): string {
    return this.#visitor.ip
  }

  get address(): string {
    return this.#visitor.address
  }

  get network(): string {
    return this.#visitor.network
  }

  get logins(): LoginStreams {
    return this.#visitor.logins
  }

  get hops(): VisitorPeerStreams {
    return this.#visitor.hops
  }

  get facts(): Connection {
    return this.#visitor.facts
  }

  isAdmitted(endpoint: Endpoint): boolean {
    return this.#visitor.isAdmitted(endpoint)
  }

  admit(endpoint: Endpoint): void {
    this.#visitor.admit(endpoint)
  }

  writerFor(
    request: IncomingRequest,
    traffic: ExchangeTraffic,
    owner: ResponseOwner,
  ): ResponseWriter {
    return new Http1ResponseWriter(this, request, traffic, owner)
  }

  sayContinue(): void {
    this.write(CONTINUE_HEAD)
  }

  write(chunk: Buffer): boolean {
    return this.#output.write(chunk)
  }

  end(): void {
    this.#output.end()
  }

  get unreadBytes(): number {
    return this.#output.heldBytes
  }

  get takenBytes(): number {
    return this.#output.takenBytes
  }

  /** See `BufferHolder`: bytes that wait for the client or a device, and incomplete heads. */
  get heldBytes(): number {
    const partBytes = this.#scanner.heldBytes + this.responseScanner.heldBytes
    const exchangeBytes = this.#exchange ? this.#headBytes + this.#exchange.heldBytes : 0
    return this.unreadBytes + partBytes + (this.#held?.length ?? 0) + exchangeBytes
  }

  /** See `BufferHolder`. */
  get movedBytes(): number {
    return this.takenBytes - this.#takenBefore + (this.#exchange?.receivedBytes ?? 0)
  }

  /** See `BufferHolder`. The exchange learns of it when the socket has closed. */
  onOverBudget(): void {
    this.#exchange?.countCut()
    this.abort()
  }

  charge(account: BufferAccount): void {
    this.#takenBefore = this.takenBytes
    this.#claim.moveTo(account, this.#context.now)
  }

  countHeld(): void {
    this.#claim.update(this.#context.now)
  }

  abort(): void {
    // Even a client that reads until the end notices a reset.
    this.#socket.resetAndDestroy()
  }

  refuse(reason: RefusalReason): void {
    const { peer } = this.listener
    if (peer) peer.refuse(reason)
    else this.abort()
  }

  exchangeDone(keepAlive: boolean): void {
    this.#exchange = undefined
    // The next request of a proxy may come from another client.
    if (this.#visitor !== this.#peer) this.#endRest()
    this.#idleSince = this.#context.now
    if (!keepAlive || this.#isStopping) {
      this.#closeGracefully()
    } else {
      this.#deadline = this.#context.now + this.#keepAliveMs
      this.#readHeld()
    }
  }

  switched(): void {
    this.#readHeld()
  }

  /** Visitors of another node are closed at that node. */
  get #keepAliveMs(): number {
    return this.listener.peer ? Number.MAX_VALUE : this.#context.limits.keepAliveMs
  }

  /** `areLent`: the bytes are valid only during the call. */
  #read(received: Buffer, areLent: boolean): void {
    this.#isReading = true
    try {
      let chunk = received
      let isLent = areLent
      for (let at = 0; at < chunk.length && !this.#closing; ) {
        // Heads are read in place. All else may wait for a device.
        if (isLent && this.#exchange) {
          chunk = Buffer.from(chunk.subarray(at))
          isLent = false
          at = 0
        }
        at = this.#readFrom(chunk, at)
      }
      this.countHeld()
    } catch (error) {
      this.#onFault(error)
    }
    this.#isReading = false
  }

  /** Processes the data at `at` and returns the offset after it. */
  #readFrom(chunk: Buffer, at: number): number {
    if (!this.#exchange) return this.#readHead(chunk, at)
    const exchange = this.#exchange
    const chunksBefore = exchange.receivedChunks
    const end = exchange.read(chunk, at)
    this.#chargeChunks(exchange.receivedChunks - chunksBefore, end - at)
    return end === at ? this.#hold(chunk, at) : end
  }

  /** Each chunk costs work, here and at the device. Large chunks pay with their bytes. */
  #chargeChunks(chunks: number, bytes: number): void {
    const cost = chunks - bytes / TINY_BYTES
    if (cost <= 0) return
    const { pieceShares } = this.#context
    if (!pieceShares.charge(this.network, cost) || this.#giveUpTurn) return
    this.#socket.pause()
    this.#giveUpTurn = pieceShares.rest(this.network, () => this.#endRest())
  }

  #endRest(): void {
    if (!this.#giveUpTurn) return
    this.#giveUpTurn()
    this.#giveUpTurn = undefined
    if (!this.#isPaused) this.#socket.resume()
  }

  #readHead(chunk: Buffer, at: number): number {
    // Otherwise answers that the client does not read would pile up.
    if (this.#socket.writableNeedDrain) return this.#hold(chunk, at)
    const before = this.#scanner.heldBytes
    let head: RequestHead
    let end: number
    try {
      end = this.#scanner.scan(chunk, at)
      if (end === -1) {
        if (before === 0) this.#deadline = this.#context.now + this.#context.limits.headMs
        return chunk.length
      }
      head = parseRequestHead(this.#scanner.takeHead())
      head = this.listener.peer ? fromPeer(head) : this.#identify(head)
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      if (isHttp2Preface(chunk, at)) this.#refuseHttp2()
      else this.#reject(FAULT_CODES[error.fault], `It has ${error.message}.`)
      return chunk.length
    }
    this.#headBytes = countedHeadBytes(before + end - at)
    this.#exchange = new Exchange(this.#context, this, head)
    this.#exchange.start()
    return end
  }

  /** Determines the visitor of a request, and returns the head as that visitor sent it. */
  #identify(received: RequestHead): RequestHead {
    const { visitor, head } = this.#peer.of(received, this.#context.proxies)
    if (visitor !== this.#visitor && this.#visitor !== this.#peer) this.#visitor.close()
    this.#visitor = visitor
    return head
  }

  /** Keeps bytes that cannot be processed yet. */
  #hold(chunk: Buffer, from: number): number {
    const rest = chunk.subarray(from)
    this.#held = this.#held ? Buffer.concat([this.#held, rest]) : Buffer.from(rest)
    const { pipelinedBytes } = this.#context.limits
    if (!this.#exchange || this.#held.length >= pipelinedBytes) this.pause()
    return chunk.length
  }

  #readHeld(): void {
    const held = this.#held
    if (!held || this.#isReading) return
    this.#held = undefined
    this.resume()
    this.#read(held, false)
  }

  /** Answers bytes that are not a request. Data after them is no request either. */
  #reject(code: EdgeErrorCode, detail?: string): void {
    const framing = { isHead: false, keepAlive: false, version: '1.1' } as const
    const reply = textReply(edgeError(code, detail))
    this.write(encodeReply(reply, framing, this.#context.clock.now()))
    this.#closeGracefully()
  }

  /** A client that speaks HTTP/2 by prior knowledge understands only HTTP/2. */
  #refuseHttp2(): void {
    this.write(HTTP_1_1_REQUIRED)
    this.#closeGracefully()
  }

  /** Half-closes after earlier writes, and drops received data until the client has closed too. */
  #closeGracefully(): void {
    this.#closing = new LingeringClose(this.#socket, this.#context.limits)
    this.#held = undefined
    this.#isPaused = false
    this.end()
    this.#socket.resume()
  }

  #linger(closing: LingeringClose, now: number): void {
    const verdict = closing.sweep(now)
    if (verdict === 'abort') this.abort()
    else if (verdict === 'close') this.#socket.destroy()
  }

  #onDeadline(): void {
    if (this.#scanner.isPartial) this.#reject('ERR_GATEWAY_REQUEST_TIMEOUT')
    // A request on its way from another node was not read yet: that node may send it elsewhere.
    else if (this.listener.peer) this.refuse('not-mine')
    else this.#closeGracefully()
  }

  #onDrain(): void {
    this.#output.flush()
    this.countHeld()
    if (this.#socket.writableNeedDrain) return
    if (this.#exchange) this.#exchange.onClientRoom()
    else this.#readHeld()
  }

  #onEnd(): void {
    if (this.#exchange) this.#exchange.onClientEnd()
    else if (!this.#closing) this.#closeGracefully()
  }

  guard(step: () => void): void {
    try {
      step()
    } catch (error) {
      this.#onFault(error)
    }
  }

  #onFault(err: unknown): void {
    this.#context.log.error({ err }, 'client connection failed')
    this.abort()
  }
}
