import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { createDeferred } from '../base/deferred.ts'
import type { Logger } from '../base/logger.ts'
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
import { StreamTable } from './stream-table.ts'

/** A sink that says each frame in one line, such as `sent DATA 3 SYN 12 bytes`, and passes it on. */
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

/** A stream that no one opens; the SDK ignores credit for it. */
const IDLE_STREAM_ID = MAX_UINT31
const EMPTY = Buffer.alloc(0)
const FAREWELL_MS = 250

export interface SessionOptions {
  /** A server opens even ids. */
  readonly role: 'server' | 'client'
  /**
   * Writes something at once when something comes: for an SDK, whose socket holds its next small write
   * back until this one's ACK comes, which the kernel would delay by 40 ms. Never on both sides: two
   * that acknowledge each other's acknowledgements never rest.
   */
  readonly acknowledges?: boolean
  /** A stream of the peer; set its handler before returning. */
  accept(stream: Stream): void
  readonly log?: Logger
  /** Hears one readable line per frame. */
  readonly trace?: (line: string) => void
  readonly limits?: Partial<SessionLimits>
  /** What it has in common with others of the same process; its own unless given. */
  readonly slabs?: SlabPool
  /**
   * False ends the session by closing the transport alone. The SDK leaks memory and its socket with
   * each GOAWAY that it gets (measured: 40 sessions, 70 MB to 450 MB, none without).
   */
  readonly saysGoodbye?: boolean
}

/**
 * Many streams over one transport, which it reads from the start. It ends once, with one reason:
 * a wrong frame, a broken transport or a GOAWAY of either side closes all streams and the transport.
 *
 * INVARIANTS
 * - The transport belongs to it: nobody else reads it, and only the FrameWriter writes.
 * - `#error` is set once, by `#die` or `#break`. From then on nothing that comes is looked at, no
 *   stream is opened and nobody who waits for a slot is called; each stream there was hears why.
 * - A stream is in `#table` from its SYN until `onClose`, the last call of its handler. DATA for a
 *   stream that is no longer there is dropped; for one that never was, it ends the session.
 * - Callbacks are synchronous, in the middle of reading or writing; they may open, write, reset and
 *   end the session. What one throws costs its own stream. `accept` sets the handler before it
 *   returns, or the bytes that ride in the SYN frame are lost.
 * - A stream stands in `#blocked` at most once, and goes to the end of the line each time: that is
 *   what keeps one writer from holding up the others.
 */
export class Session {
  readonly #transport: Duplex
  readonly #options: SessionOptions
  readonly #host: StreamHost
  readonly #table: StreamTable
  readonly #writer: FrameWriter
  /** The writer, behind the trace if there is one: whatever sends a frame sends it here. */
  readonly #wire: FrameSink
  readonly #decoder: FrameDecoder
  readonly #closed = createDeferred<MuxadoError>()
  /** Streams that wait for the transport, in turn. */
  readonly #blocked: SessionStream[] = []
  /** The last stream that owes credit below a step: an acknowledgement may as well carry it. */
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
      awaitRoom: (stream) => this.#blocked.push(stream),
      owes: (stream) => {
        this.#debtor = stream
      },
      closed: (stream, error) => this.#closeStream(stream, error),
      report: (cause) => this.#report(cause),
    }
    this.#listen()
  }

  /** Resolves with the first reason, exactly once; never rejects. */
  get closed(): Promise<MuxadoError> {
    return this.#closed.promise
  }

  /** How many streams `open()` would grant now. */
  get freeSlots(): number {
    return this.#error === undefined ? this.#table.freeSlots : 0
  }

  /**
   * Opens a stream; `first` rides in its SYN frame. Throws MuxadoError 'streams-exhausted' without a
   * free slot, or the reason that closed the session. A session without ids left goes away.
   */
  open(handler: StreamHandler, first: Buffer = EMPTY): Stream {
    if (this.#error !== undefined) throw this.#error
    if (this.#table.freeSlots === 0) {
      const error = new MuxadoError('streams-exhausted', 'the session is at its limit of streams')
      if (this.#table.isExhausted) this.#die(error)
      throw error
    }
    const stream = new SessionStream(this.#table.takeId(), this.#host)
    stream.handler = handler
    this.#table.add(stream)
    stream.open(first)
    return stream
  }

  /**
   * Calls back once, first come first served, when a slot is free; at once if one is. Never after
   * the session has closed.
   */
  whenFree(callback: () => void): void {
    if (this.#error === undefined) this.#table.whenFree(() => this.#call(callback))
  }

  /** Ends with a GOAWAY, unless it says no goodbye. Resolves when the transport is closed, within 250 ms. */
  goAway(code: ErrorCode, message: string): Promise<void> {
    this.#die(new MuxadoError('gone-away', message, { code }))
    return new Promise((resolve) => {
      if (this.#transport.closed) resolve()
      else this.#transport.once('close', resolve)
    })
  }

  #listen(): void {
    const transport = this.#transport
    const { acknowledges = false } = this.#options
    // Small frames must not wait for the ACK of the frame before.
    if (transport instanceof Socket) transport.setNoDelay(true)
    transport.on('data', (chunk: Buffer) => {
      if (this.#error !== undefined) return
      this.#decode(chunk)
      if (acknowledges) this.#writer.acknowledge()
    })
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
    // A stream that is gone: what was under way when it ended needs no answer.
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

  #payDebt(): void {
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

  /** Ends once what is written has left, as far as the transport still takes it. */
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

  /** Ends without a word: there is nobody to hear it. */
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
 * Opens a stream whose first 4 bytes are its type. They ride in the SYN frame, `first` behind them.
 * Throws like `Session.open`.
 */
export function openTyped(
  session: Session,
  type: number,
  handler: StreamHandler,
  first: Buffer = EMPTY,
): Stream {
  const head = Buffer.allocUnsafe(TYPE_BYTES + first.length)
  first.copy(head, head.writeUInt32BE(type))
  return session.open(handler, head)
}

/** An `accept` for a session: reads the type, then hands on the stream, whose handler is to be set. */
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
        if (taken < chunk.length) stream.handler.onData(chunk.subarray(taken))
      },
      onEnd: () => stream.retire(),
    }
  }
}
