import { BodyPipe, encodeChunk, LAST_CHUNK } from '../common/body-pipe.ts'
import type { Client, OutgoingResponse, ResponseOwner, ResponseWriter } from '../common/client.ts'
import type { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IncomingRequest } from '../common/incoming-request.ts'
import {
  connectionFields,
  encodeReply,
  grpcFields,
  isGrpc,
  type LocalReply,
} from '../common/local-reply.ts'
import { BodyTracker } from '../syntax/body-tracker.ts'
import { type BodyFraming, CHUNKED, UNTIL_CLOSE } from '../syntax/http-syntax.ts'
import { encodeHead, statusLine, withoutFields } from '../syntax/message-fields.ts'
import { hasNoBody } from '../syntax/response-head.ts'

/** Body parts up to this length are sent in one write with the head before them. */
const MERGED_BODY_BYTES = 16_384

const FRAMING = ['content-length', 'transfer-encoding'] as const

/** Writes a response as HTTP/1.1, or as HTTP/1.0 for clients of that version. */
export class Http1ResponseWriter implements ResponseWriter {
  readonly #client: Client
  readonly #request: IncomingRequest
  readonly #traffic: ExchangeTraffic
  readonly #owner: ResponseOwner
  #pendingHead: Buffer | undefined
  #pipe: BodyPipe | undefined
  /** The body has no length and is sent in chunks, so that a partial body does not look complete. */
  #isChunking = false
  /** Removes the chunk lines where only the content is needed. */
  #decoder: BodyTracker | undefined
  /** Bytes collected by a transform that changes the body as a whole. */
  #collectedBytes = 0
  #collects = false
  #status = 0
  #hasInformed = false
  #hasBegun = false
  #bytes = 0
  #keepAlive = false

  constructor(
    client: Client,
    request: IncomingRequest,
    traffic: ExchangeTraffic,
    owner: ResponseOwner,
  ) {
    this.#client = client
    this.#request = request
    this.#traffic = traffic
    this.#owner = owner
  }

  get status(): number {
    return this.#status
  }

  get hasBegun(): boolean {
    return this.#hasBegun
  }

  get isSilent(): boolean {
    return !this.#hasBegun && !this.#hasInformed
  }

  get bytes(): number {
    return this.#bytes
  }

  get heldBytes(): number {
    return this.#collectedBytes
  }

  get keepAlive(): boolean {
    return this.#keepAlive
  }

  interim(status: number, reason: string | undefined, fields: readonly string[]): void {
    if (this.#request.head.version === '1.0') return
    this.#hasInformed = true
    this.#client.write(encodeHead(statusLine(status, reason), fields))
  }

  begin(response: OutgoingResponse, isMore: boolean): void {
    const { status, fields, framing, transforms } = response
    const { method, version } = this.#request.head
    this.#status = status
    if (transforms.length > 0 && !hasNoBody(status, method)) {
      if (framing === CHUNKED) this.#decoder = new BodyTracker(framing)
      this.#beginPiped(response)
      return
    }
    if (framing === CHUNKED && version === '1.0') {
      // HTTP/1.0 has no chunks: the body ends with the connection.
      this.#decoder = new BodyTracker(framing)
      this.#setHead(response, withoutFields(fields, ...FRAMING), UNTIL_CLOSE)
    } else if (framing === UNTIL_CLOSE && version === '1.1' && !hasNoBody(status, method)) {
      this.#isChunking = true
      const chunked = [...withoutFields(fields, ...FRAMING), 'transfer-encoding', 'chunked']
      this.#setHead(response, chunked, CHUNKED)
    } else {
      this.#setHead(response, fields, framing)
    }
    if (!isMore) this.#flush()
  }

  write(chunk: Buffer, isLent: boolean): boolean {
    if (!this.#pipe) {
      const part = this.#decoder ? this.#decoder.decode(chunk) : chunk
      return this.#isChunking ? this.#send(encodeChunk(part)) : this.#send(part, isLent)
    }
    const own = isLent ? Buffer.from(chunk) : chunk
    const part = this.#decoder ? this.#decoder.decode(own) : own
    if (this.#collects) {
      this.#collectedBytes += part.length
      this.#client.countHeld()
    }
    return this.#pipe.write(part)
  }

  finish(): void {
    if (this.#pipe) {
      this.#pipe.end()
    } else {
      if (this.#isChunking) this.#send(LAST_CHUNK)
      this.#flush()
      this.#owner.onWritten()
    }
  }

  reply(reply: LocalReply, keepAlive: boolean, now: number): void {
    const { method, version } = this.#request.head
    this.#status = reply.status
    this.#hasBegun = true
    this.#keepAlive = keepAlive
    const bytes = encodeReply(
      this.#asCall(reply),
      { isHead: method === 'HEAD', keepAlive, version },
      now,
    )
    this.#put(bytes)
  }

  /** Converts an error for a gRPC call from another node, which forwards the response unchanged. */
  #asCall(reply: LocalReply): LocalReply {
    const { head } = this.#request
    if (head.visitorVersion !== '2.0' || reply.status < 400 || !isGrpc(head)) return reply
    return { status: 200, fields: grpcFields(reply), body: '' }
  }

  onClientRoom(): void {
    if (this.#pipe) this.#pipe.resume()
    else this.#owner.onWriterRoom()
  }

  abandon(): void {
    this.#pipe?.destroy()
  }

  /**
   * Sends the head when its framing is known: at once, or with the body if that is short enough to collect.
   */
  #beginPiped(response: OutgoingResponse): void {
    const fields = withoutFields(response.fields, ...FRAMING)
    let isChunked = false
    this.#collects = response.transforms.some((transform) => transform.isWhole)
    this.#pipe = new BodyPipe(response.transforms, {
      begin: (length) => {
        isChunked = length === undefined && this.#request.head.version !== '1.0'
        if (length !== undefined) {
          this.#setHead(response, [...fields, 'content-length', String(length)], length)
        } else if (isChunked) {
          this.#setHead(response, [...fields, 'transfer-encoding', 'chunked'], CHUNKED)
        } else {
          this.#setHead(response, fields, UNTIL_CLOSE)
        }
      },
      write: (part) => {
        this.#collectedBytes = 0
        return this.#send(isChunked ? encodeChunk(part) : part)
      },
      end: () => {
        if (isChunked) this.#send(LAST_CHUNK)
        this.#flush()
        this.#owner.onWritten()
      },
      onRoom: () => this.#owner.onWriterRoom(),
      onError: (error) => this.#owner.onTransformError(error),
    })
  }

  #setHead(
    { status, reason }: OutgoingResponse,
    fields: readonly string[],
    framing: BodyFraming,
  ): void {
    const { keepAlive, version } = this.#request.head
    const isReusable = keepAlive && !this.#request.isUnasked && !this.#client.isStopping
    this.#hasBegun = true
    this.#keepAlive = isReusable && framing !== UNTIL_CLOSE
    // The head of a protocol switch already has its connection fields.
    const more = status === 101 ? [] : connectionFields(this.#keepAlive, version)
    const all = more.length > 0 ? [...fields, ...more] : fields
    this.#pendingHead = encodeHead(statusLine(status, reason), all)
  }

  /** Short parts are copied behind a head that waits for them. */
  #send(chunk: Buffer, isLent = false): boolean {
    const head = this.#pendingHead
    if (head === undefined || chunk.length > MERGED_BODY_BYTES) {
      this.#flush()
      return this.#put(isLent ? Buffer.from(chunk) : chunk)
    }
    this.#pendingHead = undefined
    const merged = Buffer.allocUnsafe(head.length + chunk.length)
    merged.set(head)
    merged.set(chunk, head.length)
    return this.#put(merged)
  }

  #flush(): void {
    const head = this.#pendingHead
    if (head === undefined) return
    this.#pendingHead = undefined
    this.#put(head)
  }

  #put(bytes: Buffer): boolean {
    this.#bytes += bytes.length
    this.#traffic.send(bytes.length)
    return this.#client.write(bytes)
  }
}
