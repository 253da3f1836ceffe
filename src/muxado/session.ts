import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { createDeferred } from '../base/deferred.ts'
import type { Logger } from '../base/logger.ts'
import type { SharedReads } from '../base/net/shared-reads.ts'
import { ErrorCode, MuxadoError } from './error-code.ts'
import { FIN, FrameDecoder, type FrameSink, MAX_UINT31, SYN } from './frame-codec.ts'
import { FrameWriter, SlabPool } from './frame-writer.ts'
import {
  DEFAULT_LIMITS,
  type SessionLimits,
  SessionStream,
  type StreamHost,
} from './session-stream.ts'
import { DEAF, type Stream, type StreamHandler } from './stream.ts'
import { type Slot, StreamTable } from './stream-table.ts'

/** Wraps a sink so that each frame is traced as one line, for example `sent DATA 3 SYN 12 bytes`. */
function traced(
  sink: FrameSink,
  direction: 'sent' | 'received',
  trace: (line: string) => void,
): FrameSink {
  return {
    data(streamId, body, flags) {
      const names = (flags & SYN ? ' SYN' : '') + (flags & FIN ? ' FIN' : '')
      trace(`${direction} DATA ${streamId}${names} ${body.length} bytes`)
      sink.data(streamId, body, flags)
    },
    reset(streamId, code) {
      trace(`${direction} RST ${streamId} code ${code}`)
      sink.reset(streamId, code)
    },
    windowIncrement(streamId, bytes) {
      trace(`${direction} WNDINC ${streamId} ${bytes} bytes`)
      sink.windowIncrement(streamId, bytes)
    },
    goAway(lastStreamId, code, message) {
      trace(
        `${direction} GOAWAY last stream ${lastStreamId} code ${code} ${JSON.stringify(message)}`,
      )
      sink.goAway(lastStreamId, code, message)
    },
  }
}

/** Id of a stream that is never opened. The SDK ignores credit for it. */
const IDLE_STREAM_ID = MAX_UINT31
const EMPTY = Buffer.alloc(0)
/** Time for the last frames to leave before the transport is destroyed. */
const FAREWELL_MS = 250

export interface SessionOptions {
  /** A server opens streams with even ids, a client with odd ids. */
  readonly role: 'server' | 'client'
  /**
   * Sends something as soon as data arrives. Set it for an SDK peer: its socket delays the next small write
   * until the ACK, which the kernel would delay by 40 ms. Never set it on both sides: they would acknowledge
   * each other without end. Not sent while all streams rest: the peer then has nothing to write that could
   * wait.
   */
  readonly acknowledges?: boolean
  /** Called for each stream that the peer opens. Must set its handler before returning. */
  accept(stream: Stream): void
  readonly log?: Logger
  /** Receives one readable line per frame. */
  readonly trace?: (line: string) => void
  readonly limits?: Partial<SessionLimits>
  /** Reads the transport into memory that is used again. Default: new memory for each read. */
  readonly reads?: SharedReads
  /** Shared by the sessions of a process. Default: a separate pool. */
  readonly slabs?: SlabPool
  /**
   * False: ends the session by closing the transport only. The SDK leaks memory and its socket with each
   * GOAWAY it receives (measured: 40 sessions, 70 MB to 450 MB, no leak without).
   */
  readonly saysGoodbye?: boolean
}

/**
 * Multiplexes streams over one transport, which it reads from the start. It ends once, with one reason: a
 * wrong frame, a transport failure, or a GOAWAY of either side. Then all streams and the transport are
 * closed.
 *
 * INVARIANTS
 * - The session owns the transport. Nothing else reads it, and only the FrameWriter writes.
 * - `#error` is set once, by `#die` or `#break`. After that, incoming data is ignored, no stream is opened
 *   and no waiter for a slot is called. Each open stream is told the reason.
 * - A stream is in `#table` from its SYN until `onClose`, the last call of its handler. DATA for a stream
 *   that has ended is dropped. DATA for a stream that never existed ends the session.
 * - Callbacks are synchronous, in the middle of reading or writing. They may open, write, reset and end the
 *   session. An error they throw ends only their own stream. `accept` must set the handler before it returns,
 *   or the bytes in the SYN frame are lost.
 * - A stream is in `#blocked` at most once, and is appended each time. This keeps one writer from holding up
 *   the others.
 */
export class Session {
  readonly #transport: Duplex
  readonly #options: SessionOptions
  readonly #host: StreamHost & { isLent: boolean }
  readonly #table: StreamTable
  readonly #writer: FrameWriter
  /** The writer, wrapped in the trace if there is one. All frames are sent here. */
  readonly #wire: FrameSink
  readonly #decoder: FrameDecoder
  readonly #closed = createDeferred<MuxadoError>()
  /** Streams that wait for the transport, in order. */
  readonly #blocked: SessionStream[] = []
  /** Last stream that owes less credit than one step. An acknowledgement can carry this credit. */
  #debtor: SessionStream | undefined
  #error: MuxadoError | undefined

  constructor(transport: Duplex, options: SessionOptions) {
    const limits = { ...DEFAULT_LIMITS, ...options.limits }
    this.#transport = transport
    this.#options = options
    this.#table = new StreamTable({ role: options.role, ...limits })
    this.#writer = new FrameWriter({
      transport,
      slabs: options.slabs ?? new SlabPool(),
      backlogBytes: limits.backlogBytes,
      onRoom: () => this.#resumeStreams(),
      onIdle: () => this.#payDebt(),
      onOverflow: () =>
        this.#die(new MuxadoError('backlog-full', 'the peer does not read the data it requested')),
    })
    const receiver: FrameSink = {
      data: (id, body, flags) => this.#receiveData(id, body, flags),
      reset: (id, code) => this.#table.find(id)?.receiveReset(code),
      windowIncrement: (id, bytes) => this.#table.find(id)?.receiveCredit(bytes),
      goAway: (_lastId, code, message) =>
        this.#die(new MuxadoError('remote-gone-away', message, { code })),
    }
    const { trace } = options
    this.#wire = trace ? traced(this.#writer, 'sent', trace) : this.#writer
    this.#decoder = new FrameDecoder(trace ? traced(receiver, 'received', trace) : receiver)
    this.#host = {
      wire: this.#wire,
      writer: this.#writer,
      limits,
      isLent: false,
      resting: 0,
      awaitRoom: (stream) => this.#blocked.push(stream),
      owes: (stream) => {
        this.#debtor = stream
      },
      closed: (stream, error) => this.#closeStream(stream, error),
      report: (cause) => this.#report(cause),
    }
    this.#listen()
  }

  /** Resolves exactly once, with the first reason. Never rejects. */
  get closed(): Promise<MuxadoError> {
    return this.#closed.promise
  }

  /** Number of streams that `open()` would grant now. */
  get freeSlots(): number {
    return this.#error === undefined ? this.#table.freeSlots : 0
  }

  /**
   * Opens a stream. `first` is sent in its SYN frame. Throws MuxadoError 'streams-exhausted' without a free
   * slot, or the reason that closed the session. If no ids are left, the session ends too. A `reserved` slot
   * is always free: the caller has at most one such stream at a time.
   */
  open(handler: StreamHandler, first: Buffer = EMPTY, slot: Slot = 'free'): Stream {
    if (this.#error !== undefined) throw this.#error
    if (slot === 'free' ? this.#table.freeSlots === 0 : this.#table.isExhausted) {
      const error = new MuxadoError('streams-exhausted', 'the session is at its limit of streams')
      if (this.#table.isExhausted) this.#die(error)
      throw error
    }
    const stream = new SessionStream(this.#table.takeId(), this.#host)
    stream.handler = handler
    this.#table.add(stream, slot)
    stream.open(first)
    return stream
  }

  /**
   * Calls back once when a slot is free, in the order of the calls, or at once. Never calls back after the
   * session has closed.
   */
  whenFree(callback: () => void): void {
    if (this.#error === undefined) this.#table.whenFree(() => this.#call(callback))
  }

  /**
   * Ends the session with a GOAWAY, unless `saysGoodbye` is false. Resolves when the transport is closed,
   * within 250 ms.
   */
  goAway(code: ErrorCode, message: string): Promise<void> {
    this.#die(new MuxadoError('gone-away', message, { code }))
    return new Promise((resolve) => {
      if (this.#transport.closed) resolve()
      else this.#transport.once('close', resolve)
    })
  }

  #listen(): void {
    const transport = this.#transport
    const { acknowledges = false, reads } = this.#options
    // Small frames must not wait for the ACK of the previous frame.
    if (transport instanceof Socket) transport.setNoDelay(true)
    const onBytes = (chunk: Buffer) => {
      if (this.#error !== undefined) return
      this.#decode(chunk)
      if (acknowledges) this.#writer.acknowledge()
    }
    if (reads) this.#host.isLent = reads.begin(transport, onBytes)
    else transport.on('data', onBytes)
    transport.on('end', () =>
      this.#break(new MuxadoError('peer-eof', 'the peer closed the connection')),
    )
    transport.on('error', (cause) =>
      this.#break(new MuxadoError('transport-failed', cause.message, { cause })),
    )
    transport.on('close', () =>
      this.#break(new MuxadoError('transport-failed', 'the transport was closed')),
    )
  }

  #decode(chunk: Buffer): void {
    try {
      this.#decoder.push(chunk)
    } catch (cause) {
      this.#die(
        cause instanceof MuxadoError
          ? cause
          : new MuxadoError('internal', 'internal error of this side', { cause }),
      )
    }
  }

  #receiveData(id: number, body: Buffer, flags: number): void {
    if (this.#error !== undefined) return
    let stream = this.#table.find(id)
    if (flags & SYN) stream = this.#accept(id)
    else if (stream === undefined && !this.#table.knows(id)) {
      throw new MuxadoError('protocol-violation', `DATA on stream ${id}, which was never opened`)
    }
    // Undefined if the stream has ended. Data still in flight then needs no answer.
    stream?.receive(body, (flags & FIN) !== 0)
  }

  #accept(id: number): SessionStream | undefined {
    if (!this.#table.admit(id)) {
      this.#wire.reset(id, ErrorCode.streamRefused)
      return undefined
    }
    const stream = new SessionStream(id, this.#host)
    this.#table.add(stream)
    try {
      this.#options.accept(stream)
    } catch (cause) {
      stream.ownerFailed(cause)
    }
    return stream
  }

  #resumeStreams(): void {
    while (this.#writer.hasRoom) {
      const stream = this.#blocked.shift()
      if (stream === undefined) return
      stream.resume()
    }
  }

  /** Credit and ACK go with the next frame if the peer has nothing to send. */
  #payDebt(): void {
    const { resting } = this.#host
    if (resting > 0 && resting === this.#table.size) return
    const paid = this.#debtor?.grantCredit() ?? false
    this.#debtor = undefined
    if (!paid) this.#wire.windowIncrement(IDLE_STREAM_ID, 1)
  }

  #closeStream(stream: SessionStream, error: MuxadoError | undefined): void {
    this.#table.remove(stream)
    this.#call(() => stream.handler.onClose(error))
    if (this.#error === undefined) this.#table.offerSlots()
  }

  #call(callback: () => void): void {
    try {
      callback()
    } catch (cause) {
      this.#report(cause)
    }
  }

  #report(err: unknown): void {
    this.#options.log?.error({ err }, 'stream handler failed')
  }

  /** Ends the session after the written frames have left, as far as the transport still accepts them. */
  #die(error: MuxadoError): void {
    if (this.#error !== undefined) return
    this.#error = error
    const { saysGoodbye = true } = this.#options
    if (saysGoodbye) this.#wire.goAway(this.#table.lastPeerId, error.code, error.message)
    const timer = setTimeout(() => this.#transport.destroy(), FAREWELL_MS)
    this.#transport.once('close', () => clearTimeout(timer))
    this.#finish(error)
    if (saysGoodbye) this.#transport.end()
    else this.#transport.end(() => this.#transport.destroy())
  }

  /** Ends the session without GOAWAY, because the transport has already failed. */
  #break(error: MuxadoError): void {
    if (this.#error !== undefined) return
    this.#error = error
    this.#finish(error)
    this.#transport.destroy()
  }

  #finish(error: MuxadoError): void {
    this.#writer.close()
    for (const stream of this.#table.all()) stream.fail(error)
    this.#closed.resolve(error)
  }
}

const TYPE_BYTES = 4

/**
 * Opens a stream that begins with its type, 4 bytes. They are sent in the SYN frame, followed by `first`.
 * Throws like `Session.open`.
 */
export function openTyped(
  session: Session,
  type: number,
  handler: StreamHandler,
  first: Buffer = EMPTY,
  slot: Slot = 'free',
): Stream {
  const head = Buffer.allocUnsafe(TYPE_BYTES + first.length)
  first.copy(head, head.writeUInt32BE(type))
  return session.open(handler, head, slot)
}

/**
 * Returns an `accept` function for a session. It reads the type, then passes on the stream, whose handler has
 * to be set.
 */
export function acceptTyped(
  accept: (type: number, stream: Stream) => void,
): (stream: Stream) => void {
  return (stream) => {
    const head = Buffer.alloc(TYPE_BYTES)
    let filled = 0
    stream.handler = {
      ...DEAF,
      onData(chunk) {
        const taken = chunk.copy(head, filled)
        filled += taken
        stream.release(taken)
        if (filled < TYPE_BYTES) return
        stream.handler = DEAF
        accept(head.readUInt32BE(), stream)
        if (taken < chunk.length) stream.handler.onData(chunk.subarray(taken), false)
      },
      onEnd: () => stream.retire(),
    }
  }
}
