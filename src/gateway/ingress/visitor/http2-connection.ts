import {
  constants,
  type IncomingHttpHeaders,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { TLSSocket } from 'node:tls'
import type { ConnectionStage } from '../../../base/net/connection-shares.ts'
import { ConnectionFacts } from '../common/connection-facts.ts'
import { type EdgeErrorCode, edgeError, FAULT_CODES } from '../common/edge-error.ts'
import { textReply } from '../common/error-reply.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import type { IngressListener } from '../common/ingress-listener.ts'
import { type Flood, FloodGuard } from '../syntax/flood-guard.ts'
import { HttpSyntaxError } from '../syntax/http-syntax.ts'
import {
  LEAST_WINDOW_BYTES,
  onEachPiece,
  ReceiveWindow,
  SessionWatch,
  startReading,
  stopReading,
} from '../syntax/http2-session.ts'
import { headersOf } from '../syntax/message-fields.ts'
import { BROKEN_STREAM_PIECES, FLOOD_PIECES } from '../syntax/piece-shares.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { readRequestHead } from './http2-request-head.ts'
import { type Admitted, type IngressConnection, Visitor } from './visitor.ts'
import { type StreamConnection, VisitorStream } from './visitor-stream.ts'

const {
  NGHTTP2_ENHANCE_YOUR_CALM,
  NGHTTP2_FLAG_END_STREAM,
  NGHTTP2_NO_ERROR,
  NGHTTP2_REFUSED_STREAM,
} = constants

/** Concurrent requests on one connection. */
const STREAMS = 100
/** During this time, a new connection pauses together with the others of its client. */
const SUSPECTED_MS = 5_000
/**
 * Largest window of an upload whose device reads at once. With it, 10 MB over a path of 100 ms are as fast as
 * in HTTP/1.1.
 */
const MAX_WINDOW_BYTES = 4_194_304
/** Share of a window. If more than this waits for the device, the device is the bottleneck. */
const SLOW_SHARE = 3 / 4
/** Excess of a head over its limit that is still answered with 431. Larger heads are reset. */
const REFUSED_HEAD_BYTES = 16_384
const REFUSED_HEAD_FIELDS = 64

/** `raw` alternates name and value. Node's types omit it. */
type HeadEvent = [
  stream: ServerHttp2Stream,
  pseudo: IncomingHttpHeaders,
  flags: number,
  raw?: readonly string[],
]

export interface Http2ConnectionOptions {
  /** Its handshake ended in this turn of the event loop: Node requires that. */
  readonly socket: TLSSocket
  readonly listener: IngressListener
  readonly context: IngressContext
  /** Policy verdict from before there was HTTP on the connection. */
  readonly admitted?: Admitted | undefined
}

/** A visitor's HTTP/2 connection (RFC 9113) with many concurrent exchanges, one for each stream. */
export class Http2Connection implements IngressConnection, StreamConnection {
  readonly #socket: TLSSocket
  readonly #session: ServerHttp2Session
  readonly #context: IngressContext
  readonly #floods: FloodGuard
  readonly #watch: SessionWatch
  readonly #window: ReceiveWindow
  readonly #streams = new Set<VisitorStream>()
  readonly #peer: Visitor
  #isStopping = false
  #isFlooded = false
  /** Ends the suspicion that the connection causes useless work. After such work it lasts until the close. */
  readonly #endSuspicion: () => void
  /** Set while reading is paused: gives up its turn. */
  #giveUpTurn: (() => void) | undefined
  #suspectedUntil: number
  /** Time to close at while there is no stream, monotonic. */
  #deadline: number
  #idleSince: number
  /** Host names, and whether the certificate covers them. */
  readonly #covered = new Map<string, boolean>()

  constructor({ socket, listener, context, admitted }: Http2ConnectionOptions) {
    const { headBytes, headFields, headMs } = context.limits
    this.#socket = socket
    this.#context = context
    const openedAt = context.clock.now()
    this.#peer = Visitor.at(socket, {
      listener,
      facts: () => admitted?.facts ?? new ConnectionFacts(socket, openedAt, context.addresses),
    })
    if (admitted?.endpoint) this.#peer.admit(admitted.endpoint)
    this.#floods = new FloodGuard(context.clock.monotonic())
    this.#deadline = context.now + headMs
    this.#idleSince = context.now
    this.#session = performServerHandshake(socket, {
      maxHeaderListPairs: headFields + REFUSED_HEAD_FIELDS,
      // A device's head has the same limit as a client's head.
      maxSendHeaderBlockLength: 2 * headBytes,
      settings: {
        enableConnectProtocol: true,
        initialWindowSize: LEAST_WINDOW_BYTES,
        maxConcurrentStreams: STREAMS,
        maxHeaderListSize: headBytes + REFUSED_HEAD_BYTES,
      },
    }) as ServerHttp2Session
    this.#watch = new SessionWatch(this.#session, socket)
    // Many clients share the address of a proxy: they do not pause because of a single expensive client.
    this.#endSuspicion = this.#peer.isProxy(context.proxies)
      ? () => {}
      : context.pieceShares.suspect(this.#peer.network, () => this.#rest(this.#peer))
    this.#suspectedUntil = context.now + SUSPECTED_MS
    this.#window = new ReceiveWindow(this.#session, MAX_WINDOW_BYTES)
    this.#session.setLocalWindowSize(this.#window.connectionBytes)
    this.#listen()
  }

  get isStopping(): boolean {
    return this.#isStopping
  }

  /** See `Client`: sends a GOAWAY. Current streams continue. */
  stopAccepting(): void {
    if (!this.#session.closed) setImmediate(() => this.#session.close())
  }

  onContent(bytes: number): void {
    this.#floods.onContent(bytes)
  }

  onBody(bytes: number, waitingBytes: number): void {
    if (this.#isCrowded) return
    this.#window.onContent(bytes, waitingBytes > this.#window.bytes * SLOW_SHARE, this.#bodies)
  }

  /** Number of streams whose requests have not ended. */
  get #bodies(): number {
    let count = 0
    for (const stream of this.#streams) if (stream.hasOpenBody) count += 1
    return count
  }

  /** Whether data that waits for visitors and devices uses more than half of its budget. */
  get #isCrowded(): boolean {
    const { bytes, limitBytes } = this.#context.buffers
    return bytes > limitBytes / 2
  }

  #onPiece(bytes: number, visitor: Visitor): void {
    this.#charge(this.#floods.onPiece(bytes, this.#context.clock.monotonic()), visitor)
  }

  /** Charges useless work: tiny pieces of content. */
  #charge(pieces: number, visitor: Visitor): void {
    if (pieces === 0) return
    this.#suspectedUntil = Number.POSITIVE_INFINITY
    if (this.#context.pieceShares.charge(visitor.network, pieces)) this.#rest(visitor)
  }

  countEnd(isBroken: boolean, visitor = this.#peer): void {
    this.#floods.onStreamEnd(isBroken, this.#context.clock.monotonic())
    if (isBroken) this.#charge(BROKEN_STREAM_PIECES, visitor)
    this.checkFlood()
  }

  onStreamClose(stream: VisitorStream): void {
    if (this.#streams.delete(stream)) this.#context.http2Streams.open -= 1
    if (stream.visitor !== this.#peer) stream.visitor.close()
    if (this.#streams.size > 0) return
    this.#idleSince = this.#context.now
    this.#deadline = this.#context.now + this.#context.limits.keepAliveMs
  }

  get stage(): ConnectionStage {
    if (this.#streams.size === 0) return 'idle'
    for (const stream of this.#streams) if (!stream.isAwaited) return 'busy'
    return 'awaited'
  }

  get idleSince(): number {
    return this.#idleSince
  }

  yieldPlace(): void {
    this.destroy()
  }

  /** Sends a GOAWAY, which names the last stream that is served (RFC 9113 6.8). WebSockets are aborted. */
  stop(): void {
    if (this.#isStopping) return
    this.#isStopping = true
    for (const stream of this.#streams) if (stream.isSwitched) stream.abort()
    this.#deadline = this.#context.now + this.#context.limits.lingerMs
    if (!this.#session.destroyed) this.#session.close()
  }

  destroy(): void {
    this.#session.destroy()
    this.#socket.destroy()
  }

  sweep(now: number): void {
    if (now > this.#suspectedUntil) this.#endSuspicion()
    const isUnsent = [...this.#streams].some((stream) => stream.unreadBytes > 0)
    if (!this.#giveUpTurn && this.#watch.check(isUnsent)) this.destroy()
    for (const stream of this.#streams) stream.sweep(now)
    if (this.#isCrowded) this.#window.shrink()
    if (this.#streams.size > 0 || now <= this.#deadline) return
    if (this.#isStopping) this.destroy()
    else this.stop()
  }

  checkFlood(): void {
    if (this.#socket.destroyed) return
    const flood = this.#floods.check(this.#socket.bytesRead, this.#context.clock.monotonic())
    if (!flood) return
    if (this.#session.destroyed) {
      this.#socket.destroy()
      return
    }
    if (!this.#isFlooded) this.#closeFor(flood)
  }

  /** Pauses reading from a visitor that sent more tiny pieces than its share. */
  #rest({ network }: Visitor): void {
    if (this.#isFlooded || this.#socket.destroyed) return
    if (!stopReading(this.#socket)) {
      this.#closeFor('tiny-pieces')
      return
    }
    this.#giveUpTurn ??= this.#context.pieceShares.rest(network, () => {
      this.#giveUpTurn = undefined
      startReading(this.#socket)
    })
  }

  #closeFor(flood: Flood): void {
    this.#isFlooded = true
    // Megabytes may have arrived already.
    stopReading(this.#socket)
    if (!this.#peer.isProxy(this.#context.proxies)) {
      this.#context.pieceShares.charge(this.#peer.network, FLOOD_PIECES)
    }
    this.#context.log.debug(
      { flood, clientIp: this.#peer.ip },
      'connection closed: flood of frames',
    )
    // The socket closes when the GOAWAY has left, at the latest at the next check. For the delay see
    // `whenClosed`.
    setImmediate(() => this.#session.destroy(new Error(flood), NGHTTP2_ENHANCE_YOUR_CALM))
  }

  #listen(): void {
    const session = this.#session
    session.on('stream', (...args: HeadEvent) => {
      try {
        this.#open(...args)
      } catch (err) {
        this.#context.log.error({ err }, 'client connection failed')
        this.destroy()
      }
    })
    session.on('ping', () => {
      this.#floods.onPing()
      this.checkFlood()
    })
    session.on('remoteSettings', () => {
      this.#floods.onSettings()
      this.checkFlood()
    })
    // Client errors need no handling: `close` follows. Reading the stack frees memory: V8 keeps its objects
    // until then. Otherwise the error would keep a session whose SETTINGS were never acknowledged in memory
    // forever.
    session.on('error', (error) => void error.stack)
    session.on('close', () => {
      this.#peer.close()
      this.#socket.destroy()
    })
    // Removes streams from the count even if Node reports nothing more about them.
    this.#socket.once('close', () => {
      this.#giveUpTurn?.()
      this.#endSuspicion()
      setImmediate(() => this.#giveUp())
    })
    // Only HTTP/1 uses half-open connections.
    this.#socket.on('end', () => this.destroy())
  }

  #open(...[stream, pseudo, flags, raw = []]: HeadEvent): void {
    this.#floods.onStream()
    let visitor = this.#peer
    onEachPiece(stream, (bytes) => this.#onPiece(bytes, visitor))
    if (this.#isFlooded) {
      // The stream ends with the connection.
      stream.on('error', () => {})
      return
    }
    if (stream.closed || stream.destroyed) {
      // Opened and reset in one read: the request goes to no endpoint.
      this.countEnd(true)
      return
    }
    if (this.#isFull) {
      // The request was not processed: the client may repeat it (RFC 9113 8.7).
      stream.on('error', () => {})
      stream.close(NGHTTP2_REFUSED_STREAM)
      this.countEnd(true)
      return
    }
    let head: RequestHead
    try {
      const isWhole = (flags & NGHTTP2_FLAG_END_STREAM) !== 0
      head = readRequestHead(pseudo, raw, isWhole, this.#context.limits)
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      this.#reject(stream, FAULT_CODES[error.fault], `It has ${error.message}.`)
      return
    }
    if (!this.#isFor(head, pseudo[':scheme'])) {
      this.#reject(stream, 'ERR_GATEWAY_MISDIRECTED')
      return
    }
    const sender = this.#peer.of(head, this.#context.proxies)
    visitor = sender.visitor
    const visitorStream = new VisitorStream({
      ...sender,
      ...{ stream, connection: this, context: this.#context },
    })
    this.#streams.add(visitorStream)
    this.#context.http2Streams.open += 1
    if (this.#window.bytes > LEAST_WINDOW_BYTES) this.#window.fit(this.#bodies)
    visitorStream.start()
  }

  #giveUp(): void {
    this.#context.http2Streams.open -= this.#streams.size
    this.#streams.clear()
  }

  /** Whether the gateway is at its limit of streams. A connection without a stream always gets a first. */
  get #isFull(): boolean {
    const { limits, http2Streams } = this.#context
    return this.#streams.size > 0 && http2Streams.open >= limits.http2Streams
  }

  /**
   * Whether the client may request the host on this connection (RFC 9110 7.4, RFC 9113 9.1.1). Allowed are
   * the host named in the handshake and other hosts of the same certificate.
   */
  #isFor({ hostname }: RequestHead, scheme: string | undefined): boolean {
    if (scheme !== this.#peer.listener.scheme) return false
    const named = this.#peer.facts.tls?.serverName
    return !named || named.toLowerCase() === hostname || this.#covers(hostname)
  }

  #covers(hostname: string): boolean {
    let isCovered = this.#covered.get(hostname)
    if (isCovered === undefined) {
      const own = this.#peer.facts.tls?.serverCertificate?.x509
      isCovered = own?.checkHost(hostname) !== undefined
      if (this.#covered.size < STREAMS) this.#covered.set(hostname, isCovered)
    }
    return isCovered
  }

  /** Answers an invalid request. Other streams continue. */
  #reject(stream: ServerHttp2Stream, code: EdgeErrorCode, detail?: string): void {
    const { status, fields, body } = textReply(edgeError(code, detail))
    stream.on('error', () => {})
    stream.on('close', () => this.countEnd(true))
    stream.respond({ ...headersOf(fields), ':status': status })
    stream.end(body)
    stream.once('finish', () => stream.close(NGHTTP2_NO_ERROR))
  }
}
