import { connect } from 'node:net'
import { type TLSSocket, connect as tlsConnect } from 'node:tls'
import { onTestFinished } from 'vitest'
import { eventually } from './eventually.ts'
import type { IngressSite } from './ingress-site.ts'

/** Frames of RFC 9113 6, by number. */
export const DATA = 0
export const HEADERS = 1
export const PRIORITY = 2
export const RST_STREAM = 3
export const SETTINGS = 4
export const PUSH_PROMISE = 5
export const PING = 6
export const GOAWAY = 7
export const WINDOW_UPDATE = 8
export const CONTINUATION = 9

export const END_STREAM = 0x1
export const ACK = 0x1
export const END_HEADERS = 0x4
export const PADDED = 0x8
export const WITH_PRIORITY = 0x20

export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')

export interface Frame {
  readonly type: number
  readonly flags: number
  readonly stream: number
  readonly payload: Buffer
}

/** A frame as it stands on the wire, right or wrong. */
export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer | readonly number[] = [],
): Buffer {
  const body = Buffer.from(payload)
  const head = Buffer.alloc(9)
  head.writeUIntBE(body.length, 0, 3)
  head.writeUInt8(type, 3)
  head.writeUInt8(flags, 4)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, body])
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

export type Field = readonly [name: string, value: string]

/** Fields in HPACK as literals that no table remembers (RFC 7541 6.2.2). */
export function encodeFields(fields: readonly Field[]): Buffer {
  const text = (value: string) => {
    const bytes = Buffer.from(value, 'latin1')
    return Buffer.concat([encodeLength(bytes.length), bytes])
  }
  return Buffer.concat(
    fields.flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]),
  )
}

function encodeLength(length: number): Buffer {
  if (length < 127) return Buffer.from([length])
  const bytes = [127]
  let rest = length - 127
  for (; rest >= 128; rest >>= 7) bytes.push((rest & 127) | 128)
  return Buffer.from([...bytes, rest])
}

export const GET: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':authority', 'a.test'],
  [':path', '/'],
]
export const POST: readonly Field[] = [[':method', 'POST'], ...GET.slice(1)]

/** A whole head in one frame. */
export function head(stream: number, fields: readonly Field[] = GET, flags = END_STREAM): Buffer {
  return frame(HEADERS, flags | END_HEADERS, stream, encodeFields(fields))
}

const STATUSES = [200, 204, 206, 304, 400, 404, 500]

/** The `:status` at the beginning of a head as nghttp2 writes it. */
export function statusOf(block: Buffer): number {
  // A change of the table's size may stand before it (RFC 7541 6.3).
  let at = 0
  while (((block[at] as number) & 0xe0) === 0x20) at += block[at] === 0x3f ? 3 : 1
  const first = block[at] as number
  if (first & 0x80) return STATUSES[(first & 0x7f) - 8] ?? 0
  const length = block[at + 1] as number
  const value = block.subarray(at + 2, at + 2 + (length & 0x7f))
  return Number(length & 0x80 ? digitsOf(value) : value.toString())
}

/** Digits in the code of RFC 7541 B: five bits for 0 to 2, six for the others. */
function digitsOf(bytes: Buffer): string {
  let bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, '0')).join('')
  let digits = ''
  while (digits.length < 3) {
    const short = Number.parseInt(bits.slice(0, 5), 2)
    const isShort = short <= 2
    digits += isShort ? short : Number.parseInt(bits.slice(0, 6), 2) - 0x19 + 3
    bits = bits.slice(isShort ? 5 : 6)
  }
  return digits
}

/** A visitor that writes frames as they are, and keeps those that come. */
export class FrameClient {
  readonly socket: TLSSocket
  readonly frames: Frame[] = []
  isClosed = false
  #rest = Buffer.alloc(0)

  /** `proxyHeader` goes before everything else, as a load balancer sends it. */
  constructor(
    site: Pick<IngressSite, 'addresses' | 'caPem'>,
    localAddress?: string,
    proxyHeader?: Buffer,
  ) {
    const { port } = site.addresses.https
    const socket = connect({ port, host: '127.0.0.1', ...(localAddress && { localAddress }) })
    if (proxyHeader) socket.write(proxyHeader)
    this.socket = tlsConnect({
      socket,
      servername: 'a.test',
      ca: site.caPem,
      ALPNProtocols: ['h2'],
      checkServerIdentity: () => undefined,
    })
    this.socket.on('data', (chunk) => this.#read(chunk))
    this.socket.on('error', () => {})
    this.socket.on('close', () => {
      this.isClosed = true
    })
    onTestFinished(() => {
      this.socket.destroy()
    })
  }

  /** Writes; true: there is room for more. */
  send(...parts: readonly Buffer[]): boolean {
    return this.socket.write(Buffer.concat(parts))
  }

  /** The preface and settings of its own, and the acknowledgement of the others' settings. */
  begin(settings: readonly (readonly [id: number, value: number])[] = []): this {
    const payload = settings.map(([id, value]) =>
      Buffer.concat([Buffer.from([0, id]), uint32(value)]),
    )
    this.send(PREFACE, frame(SETTINGS, 0, 0, Buffer.concat(payload)), frame(SETTINGS, ACK, 0))
    return this
  }

  /** Waits for a frame, and answers it; `closed` when the connection ends without one. */
  receive(isIt: (frame: Frame) => boolean): Promise<Frame | 'closed'> {
    return eventually(() => {
      const found = this.frames.find(isIt)
      if (found) return found
      if (this.isClosed) return 'closed' as const
      throw new Error(`still waiting, got ${JSON.stringify(this.frames.map(({ type }) => type))}`)
    })
  }

  /** Whether the other side still answers. */
  async isAlive(): Promise<boolean> {
    const mark = Buffer.from('is-alive')
    this.send(frame(PING, 0, 0, mark))
    return (await this.receive((f) => f.type === PING && f.payload.equals(mark))) !== 'closed'
  }

  /** Waits until the connection has closed. */
  async closed(): Promise<void> {
    await eventually(() => {
      if (!this.isClosed) throw new Error('still open')
    })
  }

  #read(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk])
    for (;;) {
      const rest = this.#rest
      const length = rest.length < 9 ? Number.POSITIVE_INFINITY : rest.readUIntBE(0, 3)
      if (rest.length < 9 + length) return
      const [type = 0, flags = 0] = rest.subarray(3, 5)
      const stream = rest.readUInt32BE(5)
      this.frames.push({ type, flags, stream, payload: rest.subarray(9, 9 + length) })
      this.#rest = rest.subarray(9 + length)
    }
  }
}
