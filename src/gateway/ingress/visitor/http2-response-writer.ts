import type { OutgoingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { BodyPipe } from '../common/body-pipe.ts'
import type { OutgoingResponse, ResponseOwner, ResponseWriter } from '../common/client.ts'
import type { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IncomingRequest } from '../common/incoming-request.ts'
import { grpcFields, isGrpc, type LocalReply } from '../common/local-reply.ts'
import { BodyTracker } from '../syntax/body-tracker.ts'
import { CHUNKED } from '../syntax/http-syntax.ts'
import { hasField, headersOf, withoutFields } from '../syntax/message-fields.ts'
import { hasNoBody } from '../syntax/response-head.ts'

/** Higher statuses are treated as a 500 (RFC 9110 15). */
const MAX_STATUS = 599
/** Estimated size on the wire of each name and of each value: most are in the compression table. */
const FIELD_BYTES = 16

/** The stream, as its client passes it to the writer. */
export interface WriterStream {
  readonly stream: ServerHttp2Stream
  /** Whether the stream has closed: further writes are lost. */
  readonly isGone: boolean
  write(chunk: Buffer): boolean
  end(): void
  countHeld(): void
  guard(step: () => void): void
}

/** Writes a response on an HTTP/2 stream: the content without chunk lines, then the trailers. */
export class Http2ResponseWriter implements ResponseWriter {
  /** The stream ends with the response. The rest of a request body is refused, not read (RFC 9113 8.1). */
  readonly keepAlive = false
  readonly #client: WriterStream
  readonly #request: IncomingRequest
  readonly #traffic: ExchangeTraffic
  readonly #owner: ResponseOwner
  #pendingHead: OutgoingHttpHeaders | undefined
  #pipe: BodyPipe | undefined
  #decoder: BodyTracker | undefined
  /** Bytes collected by a transform that changes the body as a whole. */
  #collectedBytes = 0
  #collects = false
  #status = 0
  #hasInformed = false
  #hasBegun = false
  /** The response ends with its head. Any body is dropped. */
  #isHeadAlone = false
  #mayTrail = false
  #bytes = 0

  constructor(
    client: WriterStream,
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

  interim(status: number, _reason: string | undefined, fields: readonly string[]): void {
    this.#hasInformed = true
    this.#onStream((stream) =>
      stream.additionalHeaders({ ...headersOf(fields), ':status': status }),
    )
  }

  begin(response: OutgoingResponse, isMore: boolean): void {
    const { status, fields, framing, contentLength, transforms } = response
    const { method } = this.#request.head
    this.#status = status
    this.#hasBegun = true
    if (status === 101) {
      this.#beginSwitched(fields)
      return
    }
    // A 205 has no content (RFC 9110 15.3.6), and Node ends the stream with it.
    this.#isHeadAlone = hasNoBody(status, method) || status === 205
    if (framing === CHUNKED && !this.#isHeadAlone) this.#decoder = new BodyTracker(framing)
    if (transforms.length > 0 && !this.#isHeadAlone) {
      this.#beginPiped(response)
      return
    }
    const isEmpty = status === 205 && method !== 'HEAD'
    const known = contentLength === undefined ? [] : ['content-length', `${contentLength}`]
    const passed = isEmpty ? withoutFields(fields, 'content-length') : [...fields, ...known]
    this.#mayTrail = this.#decoder !== undefined && this.#wantsTrailers(fields)
    this.#setHead(status, passed)
    if (!isMore) this.#flush()
  }

  write(chunk: Buffer, isLent: boolean): boolean {
    if (this.#isHeadAlone) return true
    const own = isLent ? Buffer.from(chunk) : chunk
    const part = this.#decoder ? this.#decoder.decode(own) : own
    if (!this.#pipe) return this.#send(part)
    if (this.#collects) {
      this.#collectedBytes += part.length
      this.#client.countHeld()
    }
    return this.#pipe.write(part)
  }

  finish(): void {
    if (this.#pipe) this.#pipe.end()
    else this.#end()
  }

  reply(reply: LocalReply, _keepAlive: boolean, now: number): void {
    const { status, fields, body } = reply
    if (status >= 400 && isGrpc(this.#request.head)) {
      this.#refuseCall(reply)
      return
    }
    const content = Buffer.from(body)
    const hasContent = status !== 204 && status !== 205 && status !== 304
    const length = hasContent ? ['content-length', String(content.length)] : []
    this.#status = status
    this.#hasBegun = true
    this.#isHeadAlone = !hasContent || this.#request.head.method === 'HEAD'
    this.#setHead(status, [...fields, 'date', new Date(now).toUTCString(), ...length])
    if (!this.#isHeadAlone && content.length > 0) this.#send(content)
    this.#endStream()
  }

  onClientRoom(): void {
    if (this.#pipe) this.#pipe.resume()
    else this.#owner.onWriterRoom()
  }

  abandon(): void {
    this.#pipe?.destroy()
  }

  /** Answers a gRPC call, which gets its error in trailers and not in the status. */
  #refuseCall(reply: LocalReply): void {
    this.#status = reply.status
    this.#hasBegun = true
    this.#isHeadAlone = true
    this.#setHead(200, grpcFields(reply))
    this.#endStream()
  }

  /**
   * Answers a WebSocket request (RFC 8441 5). The gateway itself made the handshake, so the visitor does not
   * need its proof.
   */
  #beginSwitched(fields: readonly string[]): void {
    const passed: string[] = []
    for (let at = 0; at < fields.length; at += 2) {
      const name = fields[at] as string
      if (name.toLowerCase() !== 'sec-websocket-accept') passed.push(name, fields[at + 1] as string)
    }
    this.#setHead(200, passed)
    this.#flush()
  }

  #beginPiped({ status, fields, transforms }: OutgoingResponse): void {
    const kept = withoutFields(fields, 'content-length')
    this.#collects = transforms.some((transform) => transform.isWhole)
    this.#pipe = new BodyPipe(transforms, {
      begin: (length) =>
        this.#setHead(
          status,
          length === undefined ? kept : [...kept, 'content-length', String(length)],
        ),
      write: (part) => {
        this.#collectedBytes = 0
        return this.#send(part)
      },
      end: () => this.#end(),
      onRoom: () => this.#owner.onWriterRoom(),
      onError: (error) => this.#owner.onTransformError(error),
    })
  }

  #end(): void {
    this.#endStream()
    this.#owner.onWritten()
  }

  #endStream(): void {
    if (this.#pendingHead && !this.#mayTrail) this.#flush(true)
    else if (!this.#isHeadAlone) {
      this.#flush()
      if (!this.#client.isGone) this.#client.end()
    }
  }

  #setHead(status: number, fields: readonly string[]): void {
    const headers = headersOf(fields)
    headers[':status'] = status > MAX_STATUS ? 500 : status
    this.#pendingHead = headers
    this.#count(fields.length * FIELD_BYTES)
  }

  /** Trailers are sent to clients that accept them, or if the response announces them. */
  #wantsTrailers(fields: readonly string[]): boolean {
    if (this.#request.head.acceptsTrailers) return true
    return hasField(fields, 'trailer')
  }

  #send(chunk: Buffer): boolean {
    this.#flush()
    if (chunk.length === 0 || this.#client.isGone) return true
    this.#count(chunk.length)
    return this.#client.write(chunk)
  }

  #flush(endStream = this.#isHeadAlone): void {
    const headers = this.#pendingHead
    if (headers === undefined) return
    this.#pendingHead = undefined
    const waitForTrailers = this.#mayTrail
    this.#onStream((stream) => {
      if (waitForTrailers) stream.once('wantTrailers', () => this.#sendTrailers())
      stream.respond(headers, { endStream, waitForTrailers })
    })
  }

  #sendTrailers(): void {
    this.#onStream((stream) => stream.sendTrailers(headersOf(this.#decoder?.trailers ?? [])))
  }

  /** Runs a step on the stream. An error of Node or its library ends only this stream. */
  #onStream(step: (stream: ServerHttp2Stream) => void): void {
    if (this.#client.isGone) return
    this.#client.guard(() => step(this.#client.stream))
  }

  #count(bytes: number): void {
    this.#bytes += bytes
    this.#traffic.send(bytes)
  }
}
