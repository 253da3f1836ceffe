import { createHash } from 'node:crypto'
import type { Client } from '../common/client.ts'
import { ProgressWatch } from '../common/progress-watch.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { parseResponseHead, type ResponseHead } from '../syntax/response-head.ts'
import {
  CLOSE,
  closeFrame,
  controlFrame,
  FrameReader,
  frameHeader,
  OPCODE,
  type WebSocketEnd,
} from '../syntax/websocket-frame-reader.ts'
import { type Switched, Upgrade, type UpgradeOptions } from './upgrade.ts'

/** RFC 6455 1.3. */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const VERSION = '13'
/** Sixteen bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{22}==$/

/**
 * The gateway's response to a WebSocket handshake (RFC 6455 4.2.2); null if it is no handshake. The first
 * offered subprotocol is chosen: messages are the business of client and service.
 */
export function acceptWebSocket(head: RequestHead): ResponseHead | null {
  const { method, upgrade, fields } = head
  const key = fieldValue(fields, 'sec-websocket-key')
  const isHandshake =
    method === 'GET' &&
    upgrade?.toLowerCase() === 'websocket' &&
    fieldValue(fields, 'sec-websocket-version') === VERSION
  if (!isHandshake || key === undefined || !KEY.test(key)) return null
  const accept = createHash('sha1').update(`${key}${GUID}`).digest('base64')
  const [protocol = ''] = (fieldValue(fields, 'sec-websocket-protocol') ?? '').split(',')
  const agreed = protocol.trim() === '' ? [] : ['sec-websocket-protocol', protocol.trim()]
  const line = 'HTTP/1.1 101 Switching Protocols'
  const own = ['connection', 'Upgrade', 'upgrade', 'websocket', 'sec-websocket-accept', accept]
  return parseResponseHead({ line, fields: [...own, ...agreed] }, method)
}

/** Value of the only field of that name, or of the first. */
function fieldValue(fields: readonly string[], wanted: string): string | undefined {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === wanted)
  return at === -1 ? undefined : fields[at + 1]
}

export interface WebSocketConversionOptions extends UpgradeOptions {
  /** The service took no connection. The client got its 101 before that was known. */
  onUnreachable(): void
}

const UNREACHABLE = 'the upstream cannot be reached'
/**
 * Answer of the SDK when it reaches no service: it then waits for a request, and answers that, or invalid
 * data.
 */
const SDK_REFUSAL =
  /^HTTP\/1\.1 (502 .*\r\n\r\nfailed to dial backend: |400 .*\r\ncontent-length: 0\r\ndate: [^\r]*\r\n\r\n$)/s
const SDK_REFUSAL_STARTS = ['HTTP/1.1 502 ', 'HTTP/1.1 400 Bad Request\r\nconnection: close\r\n']
/** Longer than that with any text of the system. */
const MAX_REFUSAL_BYTES = 2_048

/**
 * A visitor's WebSocket in front of a TCP service. Content of binary messages goes to the service, and data
 * of the service is sent as binary messages. A WebSocket has no half-closed state: after one side has closed,
 * further data of the other is dropped.
 *
 * INVARIANTS
 * - A Close is sent once, as the last frame.
 * - The gateway adds at most one Pong to the waiting data: the answer to the latest Ping (RFC 6455 5.5.3).
 */
export class WebSocketConversion implements Switched {
  readonly #options: WebSocketConversionOptions
  readonly #client: WebSocketConversionOptions['client']
  readonly #inner: Upgrade
  readonly #reader: FrameReader
  readonly #watch: ProgressWatch
  /** First bytes of the service that may be the SDK's refusal; undefined when they are not. */
  #first: Buffer | undefined = Buffer.alloc(0)
  #hasClosed = false
  #isClientEnded = false
  #hasRoom = true
  /** The content of a Ping whose answer waits for room. */
  #ping: Buffer | undefined
  /** From the client, with all that is not content. */
  #framedBytes = 0

  constructor(options: WebSocketConversionOptions) {
    const { client } = options
    this.#options = options
    this.#client = client
    this.#watch = new ProgressWatch(options.limits)
    this.#reader = new FrameReader((content) => this.#onPing(content))
    const service: Pick<Client, 'pause' | 'resume' | 'write' | 'end' | 'abort'> = {
      pause: () => client.pause(),
      resume: () => client.resume(),
      write: (chunk) => this.#pass(chunk),
      end: () => this.#onServiceEnd(),
      abort: () => client.abort(),
    }
    this.#inner = new Upgrade({ ...options, client: service })
  }

  get heldBytes(): number {
    return this.#inner.heldBytes
  }

  get receivedBytes(): number {
    return this.#framedBytes
  }

  onClientData(chunk: Buffer): void {
    this.#framedBytes += chunk.length
    if (this.#isClientEnded) return
    const content = this.#reader.read(chunk)
    if (content.length > 0) this.#inner.onClientData(content)
    if (this.#reader.end) this.#follow(this.#reader.end)
  }

  /** Without a Close, the service sees a normal end. */
  onClientEnd(): void {
    if (this.#isClientEnded) return
    this.#isClientEnded = true
    this.#inner.onClientEnd()
  }

  onClientRoom(): void {
    this.#hasRoom = true
    const ping = this.#ping
    this.#ping = undefined
    if (ping) this.#onPing(ping)
    this.#inner.onClientRoom()
  }

  onClientClose(): void {
    this.#inner.onClientClose()
  }

  onData(chunk: Buffer): void {
    this.#inner.onData(chunk)
  }

  sweep(now: number): void {
    const movedBytes = this.#framedBytes + this.#inner.sentBytes
    if (this.#watch.check({ movedBytes, awaitedBodyBytes: undefined }, now)) this.#client.abort()
  }

  #follow({ kind, code, reason }: WebSocketEnd): void {
    this.#isClientEnded = true
    this.#close(code, reason)
    // An aborted connection has no regular end for the service.
    if (kind === 'closed') this.#inner.onClientEnd()
    else this.#inner.onClientClose()
  }

  #onPing(content: Buffer): void {
    if (this.#hasClosed) return
    if (this.#hasRoom) this.#hasRoom = this.#client.write(controlFrame(OPCODE.pong, content))
    else this.#ping = content
  }

  #pass(chunk: Buffer): boolean {
    if (this.#hasClosed) return true
    if (!this.#first) return this.#send(chunk)
    const first = Buffer.concat([this.#first, chunk])
    if (SDK_REFUSAL.test(first.toString('latin1', 0, MAX_REFUSAL_BYTES))) {
      this.#refuse()
      return true
    }
    this.#first = mayBeRefusal(first) ? first : undefined
    return this.#first !== undefined || this.#send(first)
  }

  #send(content: Buffer): boolean {
    if (content.length === 0) return true
    this.#client.write(frameHeader(OPCODE.binary, content.length))
    this.#hasRoom = this.#client.write(content)
    return this.#hasRoom
  }

  #onServiceEnd(): void {
    if (this.#hasClosed) return
    const first = this.#first
    if (first?.length === 0 && !this.#isClientEnded) {
      this.#refuse()
      return
    }
    if (first) this.#send(first)
    this.#close(CLOSE.normal)
  }

  #refuse(): void {
    this.#options.onUnreachable()
    this.#close(CLOSE.failed, UNREACHABLE)
  }

  #close(code: number, reason?: string): void {
    if (this.#hasClosed) return
    this.#hasClosed = true
    this.#client.write(closeFrame(code, reason))
    this.#client.end()
  }
}

function mayBeRefusal(first: Buffer): boolean {
  if (first.length > MAX_REFUSAL_BYTES) return false
  const text = first.toString('latin1')
  return SDK_REFUSAL_STARTS.some((start) => text.startsWith(start) || start.startsWith(text))
}
