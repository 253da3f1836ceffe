import { ErrorCode, MuxadoError } from './error-code.ts'
import {
  FIN,
  type FrameSink,
  INITIAL_WINDOW_BYTES,
  MAX_DATA_BYTES,
  MAX_UINT31,
  SYN,
} from './frame-codec.ts'
import { DEAF, type Stream, type StreamHandler } from './stream.ts'

/** Limits of a session. */
export interface SessionLimits {
  /** Open streams, in both directions together, at which this side opens no more. */
  readonly openStreams: number
  /** Open streams, in both directions together. Further streams of the peer are refused. */
  readonly streams: number
  /** Last stream id of this side. Then the session has to be replaced. */
  readonly lastStreamId: number
  /** Queued bytes of one stream at which another write ends it with 'send-queue-full'. */
  readonly sendQueueBytes: number
  /** Bytes of all streams in the transport at which the session ends with 'backlog-full'. */
  readonly backlogBytes: number
  /** A peer that sends data within this time after a FIN is busy sending, so it gets an RST at once. */
  readonly busyMs: number
  /**
   * After a later RST of a retired stream, its slot is kept this long. Such a peer writes only now and then.
   */
  readonly lingerMs: number
}

/**
 * The SDK allows 512 streams, in both directions together, and dies silently at the 513th. The margin of 64
 * is for streams that the SDK has not freed yet.
 */
export const DEFAULT_LIMITS: SessionLimits = {
  openStreams: 448,
  streams: 512,
  lastStreamId: MAX_UINT31,
  sendQueueBytes: 1_048_576,
  backlogBytes: 1_048_576,
  busyMs: 1_000,
  lingerMs: 60_000,
}

/** Credit is returned in steps of this size. Larger steps stall the peer, smaller ones cost frames. */
const CREDIT_STEP_BYTES = 32_768

/** Bytes that this side may still send on a stream. */
export class SendWindow {
  #available = INITIAL_WINDOW_BYTES

  get available(): number {
    return this.#available
  }

  take(bytes: number): void {
    this.#available -= bytes
  }

  /** Returns false if the peer grants more than the protocol can count. */
  grow(bytes: number): boolean {
    this.#available += bytes
    return this.#available <= MAX_UINT31
  }
}

/**
 * Bytes that the peer may still send on a stream.
 *
 * Each byte of the window is either granted to the peer, held by the stream's owner, or owed to the peer. So
 * an owner never holds more than the window.
 */
export class ReceiveWindow {
  #granted = INITIAL_WINDOW_BYTES
  #owed = 0

  /** Received bytes that the owner has not released. */
  get unreleased(): number {
    return INITIAL_WINDOW_BYTES - this.#granted - this.#owed
  }

  /** Returns false if the peer sent more than it was granted. */
  receive(bytes: number): boolean {
    this.#granted -= bytes
    return this.#granted >= 0
  }

  /** Takes bytes back from the owner. Returns true if a full step is owed. */
  release(bytes: number): boolean {
    this.#owed += Math.min(bytes, this.unreleased)
    return this.#owed >= CREDIT_STEP_BYTES
  }

  /** Grants the owed bytes and returns their number. */
  grant(): number {
    const bytes = this.#owed
    this.#owed = 0
    this.#granted += bytes
    return bytes
  }
}

const EMPTY = Buffer.alloc(0)

/** Bytes sent in a SYN frame while the transport is full. The rest waits. */
const CROWDED_SYN_BYTES = 1_024

/** The session, as seen by its streams. */
export interface StreamHost {
  readonly wire: FrameSink
  /** False while the transport is full. */
  readonly writer: { readonly hasRoom: boolean }
  readonly limits: SessionLimits
  /** True: received bytes are valid only while they are handled. */
  readonly isLent: boolean
  /** Number of streams on which nothing is awaited. */
  resting: number
  /** Requests a call of `resume()` when the transport has room. */
  awaitRoom(stream: SessionStream): void
  /** Reports that the stream owes the peer less credit than one step. */
  owes(stream: SessionStream): void
  /** Removes the stream from the session, then calls its handler. */
  closed(stream: SessionStream, error: MuxadoError | undefined): void
  /** Reports an error thrown by a callback of the stream's owner. */
  report(cause: unknown): void
}

/** A stream, with the methods that its session calls. */
export class SessionStream implements Stream {
  readonly id: number
  handler: StreamHandler = DEAF
  readonly #host: StreamHost
  readonly #sendWindow = new SendWindow()
  readonly #receiveWindow = new ReceiveWindow()
  /** Chunks that wait for credit or room, oldest first. */
  #queue: Buffer[] = []
  #queuedBytes = 0
  #drainDue = false
  #waitsForRoom = false
  #ending = false
  #finSent = false
  #peerEnded = false
  #retired = false
  #retiredAt = 0
  /** Reset, but the peer probably keeps its slot until its next write. */
  #lingering = false
  #closed = false
  #isResting = false

  constructor(id: number, host: StreamHost) {
    this.id = id
    this.#host = host
  }

  get isClosed(): boolean {
    return this.#closed
  }

  write(chunk: Buffer): boolean {
    if (this.#closed || this.#retired) return false
    this.#rouse()
    if (this.#ending) {
      this.abort(new MuxadoError('write-after-end', `stream ${this.id}: write after end`))
      return false
    }
    if (this.#queuedBytes > this.#host.limits.sendQueueBytes) {
      this.abort(new MuxadoError('send-queue-full', `stream ${this.id}: nobody waits for onDrain`))
      return false
    }
    const sent = this.#queuedBytes === 0 ? this.#send(chunk) : 0
    if (sent < chunk.length) {
      this.#queue.push(chunk.subarray(sent))
      this.#queuedBytes += chunk.length - sent
    }
    if (this.#queuedBytes === 0 && this.#host.writer.hasRoom) return true
    this.#drainDue = true
    this.#awaitRoom()
    return false
  }

  end(): void {
    if (this.#closed || this.#ending) return
    this.#rouse()
    this.#ending = true
    if (this.#queuedBytes === 0) this.#sendFin()
  }

  rest(): void {
    if (this.#closed || this.#isResting) return
    this.#isResting = true
    this.#host.resting += 1
  }

  release(bytes: number): void {
    if (this.#closed || this.#peerEnded) return
    if (this.#receiveWindow.release(bytes)) this.grantCredit()
    else this.#host.owes(this)
  }

  retire(): void {
    if (this.#closed || this.#retired) return
    this.#rouse()
    // A peer that waits for credit would not see the FIN, so it gets its whole window back.
    this.#receiveWindow.release(this.#receiveWindow.unreleased)
    this.grantCredit()
    this.#retired = true
    this.#retiredAt = performance.now()
    this.#ending = true
    this.#dropQueue()
    if (!this.#finSent) this.#sendFin()
  }

  reset(code: number): void {
    this.abort(new MuxadoError('stream-cancelled', `stream ${this.id} was reset here`, { code }))
  }

  /**
   * Sends the first frame of a stream opened by this side. It never waits, because ids have to be sent in
   * order.
   */
  open(first: Buffer): void {
    const body = first.subarray(0, this.#host.writer.hasRoom ? MAX_DATA_BYTES : CROWDED_SYN_BYTES)
    this.#sendWindow.take(body.length)
    this.#host.wire.data(this.id, body, SYN)
    if (body.length < first.length) this.write(first.subarray(body.length))
  }

  /** Handles a DATA frame of the peer, or a part of it. */
  receive(body: Buffer, ends: boolean): void {
    if (this.#closed) return
    try {
      if (body.length > 0) this.#receiveBody(body)
      if (ends && !this.#closed && !this.#peerEnded) this.#receiveFin()
    } catch (cause) {
      this.ownerFailed(cause)
    }
  }

  /** Handles an RST of the peer. */
  receiveReset(code: number): void {
    this.fail(new MuxadoError('stream-reset', `stream ${this.id} was reset by the peer`, { code }))
  }

  /** Handles a WNDINC of the peer. */
  receiveCredit(bytes: number): void {
    if (!this.#sendWindow.grow(bytes)) {
      this.abort(new MuxadoError('window-exceeded', `stream ${this.id}: credit past 2^31 - 1`))
    } else if (this.#queuedBytes > 0) this.#drain()
  }

  /** Sends queued data, because the transport has room. */
  resume(): void {
    this.#waitsForRoom = false
    if (!this.#closed) this.#drain()
  }

  /** Sends the owed credit. Returns false if there is none. */
  grantCredit(): boolean {
    if (this.#closed || this.#peerEnded) return false
    const bytes = this.#receiveWindow.grant()
    if (bytes > 0) this.#host.wire.windowIncrement(this.id, bytes)
    return bytes > 0
  }

  /** Ends the stream with an RST that carries the error's code. */
  abort(error: MuxadoError): void {
    if (this.#closed) return
    this.#sendReset(error.code)
    this.fail(error)
  }

  /** Ends the stream after an error thrown by its owner. Other streams continue. */
  ownerFailed(cause: unknown): void {
    this.#host.report(cause)
    this.abort(
      new MuxadoError('handler-failed', `stream ${this.id}: internal error of its owner`, {
        cause,
      }),
    )
  }

  /** Ends the stream without sending anything. */
  fail(error: MuxadoError | undefined): void {
    if (this.#closed) return
    this.#closed = true
    this.#rouse()
    this.#dropQueue()
    this.#host.closed(this, error)
  }

  #rouse(): void {
    if (!this.#isResting) return
    this.#isResting = false
    this.#host.resting -= 1
  }

  /** Sends as much of `chunk` as credit and room allow. Returns the number of bytes sent. */
  #send(chunk: Buffer): number {
    let sent = 0
    while (sent < chunk.length && this.#host.writer.hasRoom) {
      const bytes = Math.min(chunk.length - sent, this.#sendWindow.available, MAX_DATA_BYTES)
      if (bytes <= 0) break
      this.#sendWindow.take(bytes)
      const whole = bytes === chunk.length
      this.#host.wire.data(this.id, whole ? chunk : chunk.subarray(sent, sent + bytes), 0)
      sent += bytes
    }
    return sent
  }

  #drain(): void {
    for (let head = this.#queue[0]; head !== undefined; head = this.#queue[0]) {
      const sent = this.#send(head)
      this.#queuedBytes -= sent
      if (sent < head.length) {
        this.#queue[0] = head.subarray(sent)
        break
      }
      this.#queue.shift()
    }
    if (this.#queuedBytes === 0 && this.#ending && !this.#finSent) this.#sendFin()
    if (this.#closed || (this.#queuedBytes === 0 && !this.#drainDue)) return
    if (!this.#host.writer.hasRoom) this.#awaitRoom()
    else if (this.#queuedBytes === 0) this.#tellDrained()
  }

  #tellDrained(): void {
    this.#drainDue = false
    try {
      this.handler.onDrain()
    } catch (cause) {
      this.ownerFailed(cause)
    }
  }

  #awaitRoom(): void {
    if (this.#waitsForRoom || this.#host.writer.hasRoom) return
    this.#waitsForRoom = true
    this.#host.awaitRoom(this)
  }

  #sendFin(): void {
    this.#finSent = true
    this.#drainDue = false
    this.#host.wire.data(this.id, EMPTY, FIN)
    if (this.#peerEnded) this.fail(undefined)
  }

  #receiveBody(body: Buffer): void {
    if (this.#peerEnded) {
      this.abort(new MuxadoError('protocol-violation', `stream ${this.id}: DATA after FIN`))
    } else if (!this.#receiveWindow.receive(body.length)) {
      this.abort(new MuxadoError('window-exceeded', `stream ${this.id}: more data than its window`))
    } else if (this.#retired) {
      this.#stopPeer()
    } else {
      const { handler } = this
      const { isLent } = this.#host
      if (!isLent || handler.readsLent) handler.onData(body, isLent)
      else handler.onData(Buffer.from(body), false)
    }
  }

  #receiveFin(): void {
    this.#peerEnded = true
    if (!this.#retired) this.handler.onEnd()
    if (this.#finSent) this.fail(undefined)
  }

  /** Handles DATA on a retired stream: the peer did not stop at the FIN. */
  #stopPeer(): void {
    if (this.#lingering) return
    const { busyMs, lingerMs } = this.#host.limits
    if (performance.now() - this.#retiredAt < busyMs) {
      this.reset(ErrorCode.streamCancelled)
      return
    }
    this.#sendReset(ErrorCode.streamCancelled)
    this.#lingering = true
    setTimeout(() => this.fail(undefined), lingerMs).unref()
  }

  #sendReset(code: number): void {
    this.#host.wire.reset(this.id, code)
    // The SDK sees an RST only at its next write. Credit wakes a writer that waits for its window.
    this.#host.wire.windowIncrement(this.id, 1)
  }

  #dropQueue(): void {
    this.#queue = []
    this.#queuedBytes = 0
  }
}
