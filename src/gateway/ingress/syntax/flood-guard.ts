/** Limits of useless work that a client causes on one connection. */
export interface FloodLimits {
  /** Allowed excess of broken over complete streams, and its decrease each second. */
  readonly brokenStreams: number
  readonly forgivenStreams: number
  /** Bytes beside heads and bodies, and so many more each second. */
  readonly idleBytes: number
  readonly idleBytesPerSecond: number
  /** Allowed head bytes of a stream, on average. */
  readonly bytesPerStream: number
  /** Bytes of frames for each byte of content, and for each piece of it: it is acknowledged. */
  readonly bytesPerContentByte: number
  readonly bytesPerPiece: number
  /** Cost of a PING beyond one for each piece of content, and of a SETTINGS: both need an answer. */
  readonly pingBytes: number
  readonly settingsBytes: number
  /** Tiny pieces of content that cost nothing, and so many more each second: see `PieceShares`. */
  readonly pieces: number
  readonly piecesPerSecond: number
}

/** Smaller pieces of content cost by the piece, larger pieces by the byte. */
export const TINY_BYTES = 512

export const FLOOD_LIMITS: FloodLimits = {
  brokenStreams: 100,
  forgivenStreams: 5,
  idleBytes: 1_048_576,
  idleBytesPerSecond: 1_024,
  bytesPerStream: 16_384,
  bytesPerContentByte: 2,
  bytesPerPiece: 128,
  pingBytes: 1_024,
  settingsBytes: 4_096,
  pieces: 500,
  piecesPerSecond: 500,
}

export type Flood = 'broken-streams' | 'idle-bytes' | 'tiny-pieces'

/**
 * Counts useless work of a client on a connection: streams that it breaks, or makes the gateway break (rapid
 * reset, MadeYouReset), and bytes that are neither request nor content (PING, SETTINGS, PRIORITY,
 * CONTINUATION, heads enlarged by the HPACK table). Node's library limits a part of it, which differs by
 * version, and does not always close such a connection.
 */
export class FloodGuard {
  readonly #limits: FloodLimits
  readonly #since: number
  #brokenStreams = 0
  #brokenAt: number
  #streams = 0
  #contentBytes = 0
  #pieces = 0
  #pings = 0
  #piecesLeft: number
  #piecesAt: number
  #costs = 0

  /** `now` is monotonic, here and below. */
  constructor(now: number, limits = FLOOD_LIMITS) {
    this.#limits = limits
    this.#since = now
    this.#brokenAt = now
    this.#piecesLeft = limits.pieces
    this.#piecesAt = now
  }

  onStream(): void {
    this.#streams += 1
  }

  /** A stream ended; `isBroken`: by the client, or because of its data. */
  onStreamEnd(isBroken: boolean, now: number): void {
    const forgiven = ((now - this.#brokenAt) / 1_000) * this.#limits.forgivenStreams
    this.#brokenAt = now
    this.#brokenStreams = Math.max(0, this.#brokenStreams - forgiven + (isBroken ? 1 : -1))
  }

  /** A piece of content of a request or response. Clients that measure the path send a PING with each. */
  onContent(bytes: number): void {
    if (bytes === 0) return
    this.#contentBytes += bytes
    this.#pieces += 1
  }

  /**
   * A piece of content that the client has sent: counts as content, and as work. Answers by how much
   * it exceeds the tiny pieces that every connection may send, such as keystrokes and small messages.
   */
  onPiece(bytes: number, now: number): number {
    this.onContent(bytes)
    const { pieces, piecesPerSecond } = this.#limits
    const cost = Math.max(0, 1 - bytes / TINY_BYTES)
    if (cost === 0) return 0
    const left = this.#piecesLeft + ((now - this.#piecesAt) / 1_000) * piecesPerSecond
    this.#piecesAt = now
    this.#piecesLeft = Math.max(0, Math.min(pieces, left) - cost)
    return this.#piecesLeft > 0 ? 0 : cost
  }

  onPing(): void {
    this.#pings += 1
  }

  onSettings(): void {
    this.#costs += this.#limits.settingsBytes
  }

  /**
   * The flood for which the connection has to be closed, if any. `receivedBytes`: all bytes received on it.
   */
  check(receivedBytes: number, now: number): Flood | undefined {
    const { idleBytes, idleBytesPerSecond, bytesPerStream } = this.#limits
    const { bytesPerContentByte, bytesPerPiece } = this.#limits
    const pings = Math.max(0, this.#pings - this.#pieces)
    if (this.#brokenStreams > this.#limits.brokenStreams) return 'broken-streams'
    const allowed =
      idleBytes +
      ((now - this.#since) / 1_000) * idleBytesPerSecond +
      this.#streams * bytesPerStream +
      this.#contentBytes * bytesPerContentByte +
      this.#pieces * bytesPerPiece
    const costs = this.#costs + pings * this.#limits.pingBytes
    return receivedBytes + costs > allowed ? 'idle-bytes' : undefined
  }
}
