import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type OutgoingHttpHeaders,
} from 'node:http2'
import type { MuxadoError } from '../../../muxado/error-code.ts'
import type { ProxyStream, StreamResident } from '../../streams/proxy-stream.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { FloodGuard } from '../syntax/flood-guard.ts'
import type { ForwardFailure } from './forward.ts'
import { FrameWatch } from './frame-watch.ts'
import { StreamDuplex, type StreamDuplexOwner } from './stream-duplex.ts'

const { NGHTTP2_CANCEL } = constants

/**
 * Receive window of a response that waits for its visitor: twice the window of a stream of the wire protocol,
 * so that the service does not wait for HTTP/2 as well. Fixed, because services may not expect a change on a
 * connection in use.
 */
const WINDOW_BYTES = 524_288
/**
 * Large, so that its updates are rare: the window of the only stream is the limit. An update of the
 * connection next to one of the stream would wait for the service's delayed acknowledgement, 40 ms,
 * because the SDK leaves Nagle's algorithm on. 10 MB then take 780 ms in place of 190.
 */
const CONNECTION_WINDOW_BYTES = 64 * WINDOW_BYTES
/** Heads that are a little too large are read, and refused by name. */
const REFUSED_HEAD_FIELDS = 64
/** Time in which the first bytes of a request wait for more. */
const HOLD_MS = 1
/** How long a service may take to hear that a request was given up. */
const CANCEL_MS = 1_000

/** User of the connection. */
export interface UpstreamUser {
  /** The connection is no longer usable, and the response is incomplete. */
  onUpstreamEnd(failure: ForwardFailure): void
  /** Bytes that are no HTTP/2, in place of the first frame and behind it. */
  onForeign(chunk: Buffer): void
  /** The device takes more again. */
  onUpstreamRoom(): void
  /** Data arrived: the held bytes may have grown. */
  onReceived(): void
}

/**
 * HTTP/2 with a device's service (RFC 9113 3.3, prior knowledge), on one proxy stream, for one exchange at a
 * time. It is kept for the next exchange, like a connection of HTTP/1.1. So each exchange has its own stream,
 * share and window, and a broken service affects only that exchange.
 *
 * INVARIANTS
 * - It lives until its proxy stream is retired. The user is informed of its end once, unless it was released
 *   or cancelled before.
 * - Work that the device causes is counted, also between two exchanges.
 */
export class Http2Upstream implements StreamResident, StreamDuplexOwner {
  readonly #proxy: ProxyStream
  readonly #context: IngressContext
  readonly #duplex: StreamDuplex
  readonly #session: ClientHttp2Session
  readonly #floods: FloodGuard
  readonly #received = new FrameWatch('server')
  readonly #sent = new FrameWatch('client')
  #user: UpstreamUser | undefined
  #stream: ClientHttp2Stream | undefined
  /** Data from before it is known to be HTTP/2. */
  #first: Buffer | undefined = Buffer.alloc(0)
  /** The service sends no more, and its data is complete. */
  #isEnded = false
  #isRetired = false
  #cancelling: NodeJS.Timeout | undefined

  /** The connection of a stream; a new one if the stream was not used before. */
  static on(proxy: ProxyStream, context: IngressContext): Http2Upstream {
    const { resident } = proxy
    return resident instanceof Http2Upstream ? resident : new Http2Upstream(proxy, context)
  }

  private constructor(proxy: ProxyStream, context: IngressContext) {
    const { headBytes, headFields } = context.limits
    this.#proxy = proxy
    this.#context = context
    this.#floods = new FloodGuard(context.clock.monotonic())
    this.#duplex = new StreamDuplex(proxy.stream, this)
    // The preface leaves with the first request.
    this.#duplex.hold(HOLD_MS)
    this.#session = connect('http://device', {
      createConnection: () => this.#duplex,
      maxHeaderListPairs: headFields + REFUSED_HEAD_FIELDS,
      maxSendHeaderBlockLength: 2 * headBytes,
      settings: {
        enablePush: false,
        initialWindowSize: WINDOW_BYTES,
        maxHeaderListSize: headBytes,
      },
    })
    this.#listen()
    proxy.resident = this
    proxy.stream.handler = this
  }

  /** Bytes from the device so far. */
  get receivedBytes(): number {
    return this.#duplex.receivedBytes
  }

  /** False: wait for `onUpstreamRoom` before sending more. */
  get hasRoom(): boolean {
    return !this.#duplex.isBlocked
  }

  /** The service has sent all of the response, though it may wait here. */
  get isWhole(): boolean {
    const id = this.#stream?.id
    return id !== undefined && this.#received.endedStream === id
  }

  /** Sends a head. Throws if the connection is no longer usable. */
  request(
    user: UpstreamUser,
    headers: OutgoingHttpHeaders,
    options: { readonly endStream: boolean; readonly waitForTrailers: boolean },
  ): ClientHttp2Stream {
    this.#user = user
    this.#floods.onStream()
    this.#duplex.hold(HOLD_MS)
    const stream = this.#session.request(headers, options)
    this.#stream = stream
    return stream
  }

  /** Counts a piece of content of a request or response. */
  onContent(bytes: number): void {
    this.#floods.onContent(bytes)
  }

  /** The exchange is over, and both have said all. `isForAll` answers false when it has kept the stream. */
  release(isForAll: (stream: ProxyStream) => boolean): void {
    this.#letGo()
    const isKept = !this.#isEnded && !this.#isGivenUp && !this.#session.closed
    if (!isKept) this.#proxy.retire()
    else if (isForAll(this.#proxy)) this.#proxy.release()
  }

  /** Cancels the exchange. The service is informed (RFC 9113 8.7), then the connection closes. */
  cancel(): void {
    const stream = this.#stream
    this.#letGo()
    if (this.#isRetired) return
    // No exchange is to be ended in its place.
    this.#proxy.user = undefined
    if (!stream || this.#session.destroyed) {
      this.#proxy.retire()
      return
    }
    this.#cancelling = setTimeout(() => this.#proxy.retire(), CANCEL_MS).unref()
    // Later, here and below: see `whenClosed`.
    setImmediate(() => {
      stream.close(NGHTTP2_CANCEL)
      this.#session.close()
    })
  }

  onData(chunk: Buffer): void {
    this.#received.see(chunk)
    if (this.#received.isHttp2 === false) {
      this.#passForeign(chunk)
      return
    }
    const first = this.#first
    this.#first = this.#received.isHttp2 ? undefined : Buffer.concat([first ?? chunk, chunk])
    if (this.#first) return
    this.#duplex.receive(first && first.length > 0 ? Buffer.concat([first, chunk]) : chunk)
    this.#user?.onReceived()
    this.checkFlood()
    if (!this.#user && this.#isGivenUp) this.#proxy.retire()
  }

  onEnd(): void {
    // The SDK closes without a byte when nothing listens at `forwards_to`.
    const isMute = this.#first?.length === 0 && this.receivedBytes === 0
    this.#onTransportEnd(isMute ? 'unreachable' : 'broken')
  }

  onDrain(): void {
    this.#duplex.unblock()
    this.#user?.onUpstreamRoom()
  }

  onClose(error: MuxadoError | undefined): void {
    this.#onTransportEnd(error && error.reason !== 'stream-reset' ? 'lost' : 'broken')
  }

  onRetired(): void {
    this.#isRetired = true
    clearTimeout(this.#cancelling)
    setImmediate(() => {
      this.#session.destroy()
      this.#duplex.destroy()
    })
  }

  onSend(chunk: Buffer): void {
    this.#sent.see(chunk)
    if (this.#stream && this.#sent.endedStream === this.#stream.id) this.#duplex.letGoSoon()
    // Node's library finds that the service does not keep to the protocol; Node may not say so.
    if (this.#sent.goawayCode) setImmediate(() => this.#end('broken'))
  }

  onDuplexClose(): void {
    if (!this.#isRetired) this.#end('broken')
  }

  /** Checks for useless frames of the device. */
  checkFlood(): void {
    const flood = this.#floods.check(this.receivedBytes, this.#context.clock.monotonic())
    if (!flood) return
    this.#context.log.debug({ flood }, 'upstream connection closed: flood of frames')
    this.#end('invalid')
  }

  /** One side has said that nothing new begins here. */
  get #isGivenUp(): boolean {
    return this.#received.goawayCode !== undefined || this.#sent.goawayCode !== undefined
  }

  #listen(): void {
    const session = this.#session
    session.once('connect', () => session.setLocalWindowSize(CONNECTION_WINDOW_BYTES))
    session.on('ping', () => {
      this.#floods.onPing()
      this.checkFlood()
    })
    session.on('remoteSettings', () => {
      this.#floods.onSettings()
      this.checkFlood()
    })
    // The close event reports the error.
    session.on('error', () => {})
    session.on('close', () => this.#end('broken'))
    this.#duplex.on('error', () => {})
  }

  #passForeign(chunk: Buffer): void {
    const first = this.#first ?? Buffer.alloc(0)
    this.#first = Buffer.alloc(0)
    this.#proxy.stream.release(first.length + chunk.length)
    if (this.#user) this.#user.onForeign(Buffer.concat([first, chunk]))
    else this.#proxy.retire()
  }

  /** A response that is whole may go on to a slow visitor. */
  #onTransportEnd(failure: ForwardFailure): void {
    this.#isEnded = true
    if (!this.#user || !this.isWhole) this.#end(failure)
  }

  #end(failure: ForwardFailure): void {
    const user = this.#user
    this.#letGo()
    this.#proxy.retire()
    user?.onUpstreamEnd(failure)
  }

  #letGo(): void {
    this.#user = undefined
    this.#stream = undefined
  }
}
