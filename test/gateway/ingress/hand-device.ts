import { expect } from 'vitest'
import { ErrorCode } from '../../../src/muxado/error-code.ts'
import type { Stream } from '../../../src/muxado/stream.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { type MemorySiteOptions, startMemorySite } from '../../helpers/memory-site.ts'
import type { MemorySocket } from '../../helpers/memory-socket.ts'

const HEADER_LENGTH_BYTES = 8

/** One stream of a device that does what a test tells it. */
export class HandStream {
  readonly #stream: Stream
  #received = Buffer.alloc(0)
  #unreleased = 0
  /** The gateway has ended it. */
  isEnded = false

  constructor(stream: Stream, device: HandDevice) {
    this.#stream = stream
    stream.handler = {
      onData: (chunk) => {
        this.#received = Buffer.concat([this.#received, chunk])
        this.#unreleased += chunk.length
        if (!device.isDeaf) this.listen()
        device.onData?.(this)
      },
      onEnd: () => {
        this.isEnded = true
        if (!device.isDeaf) stream.end()
      },
      onDrain() {},
      onClose() {},
    }
  }

  /** What came behind the header that tells whose connection it is. */
  get text(): string {
    if (this.#received.length < HEADER_LENGTH_BYTES) return ''
    const begin = HEADER_LENGTH_BYTES + Number(this.#received.readBigInt64LE())
    return this.#received.toString('latin1', begin)
  }

  /** Lets the gateway send as much again as it has sent. */
  listen(): void {
    this.#stream.release(this.#unreleased)
    this.#unreleased = 0
  }

  /** Answers false when the gateway has taken as much as it wants. */
  send(text: string): boolean {
    return this.#stream.write(Buffer.from(text, 'latin1'))
  }

  end(): void {
    this.#stream.end()
  }

  reset(): void {
    this.#stream.reset(ErrorCode.internal)
  }
}

/** A device whose streams answer when, and what, a test says. */
export class HandDevice {
  readonly streams: HandStream[] = []
  /** It takes no more than one window of bytes, and answers no end. */
  isDeaf = false
  /** Called with each piece that comes. */
  onData: ((stream: HandStream) => void) | undefined

  get last(): HandStream {
    const stream = this.streams.at(-1)
    if (!stream) throw new Error('no stream has come')
    return stream
  }
}

export const textOf = (socket: MemorySocket) => Buffer.concat(socket.received).toString('latin1')

/** A site with such a device, and clients in memory. */
export async function startHandSite(options: Partial<MemorySiteOptions> = {}) {
  const device = new HandDevice()
  const site = await startMemorySite({
    serve: (stream) => device.streams.push(new HandStream(stream, device)),
    ...options,
  })
  const free = site.session.freeSlots
  /** Sends text on a new connection and lets it arrive. */
  const visit = async (text: string) => {
    const socket = site.visit()
    socket.send(text)
    await turns()
    return socket
  }
  /** Lets everything arrive, and answers all that a client has read. */
  const read = async (socket: MemorySocket) => {
    do await turns(8)
    while (socket.consume(1_000_000) > 0)
    // A mistake of ours costs a connection, which looks like a reset.
    expect(site.captured.text()).not.toContain('client connection failed')
    return textOf(socket)
  }
  return { device, site, free, visit, read }
}
