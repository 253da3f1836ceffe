import type { BodyFraming } from './body-framing.ts'
import { CHUNKED, UNTIL_CLOSE } from './body-framing.ts'
import type { Client } from './client.ts'
import { responseFields } from './forwarded-headers.ts'
import { connectionFields, encodeReply, type LocalReply } from './local-reply.ts'
import { formatHead, statusLine } from './message-text.ts'
import type { RequestHead } from './request-head.ts'
import type { ResponseHead } from './response-head.ts'

/** A body part up to this length leaves in one piece with the head before it. */
const MERGED_BODY_BYTES = 16_384

/** A final response as it is to reach the client; `fields` say nothing of the connection yet. */
export interface OutgoingResponse {
  readonly status: number
  readonly reason: string | undefined
  readonly fields: string[]
  readonly framing: BodyFraming
}

/** Writes the response to one request. */
export class ResponseWriter {
  readonly #client: Client
  readonly #request: RequestHead
  #pendingHead: string | undefined
  /** 0 until the final response has begun. */
  status = 0
  /** Bytes of the final response so far. */
  bytes = 0
  /** Whether the client has been told that the connection goes on. */
  keepAlive = false

  constructor(client: Client, request: RequestHead) {
    this.#client = client
    this.#request = request
  }

  /** Passes a 1xx on, to a client that can know it (RFC 9110 15.2). */
  interim(head: ResponseHead): void {
    if (this.#request.minorVersion === 0) return
    const text = formatHead(statusLine(head.status, head.reason), responseFields(head))
    this.#client.write(Buffer.from(text, 'latin1'))
  }

  /**
   * Begins the final response. With `isMore`, its head waits for the next `write()` or `flush()`.
   * Answers true when the body has to come without chunk lines, because HTTP/1.0 has none.
   */
  begin({ status, reason, fields, framing }: OutgoingResponse, isMore: boolean): boolean {
    const { minorVersion, keepAlive } = this.#request
    const isDecoded = framing === CHUNKED && minorVersion === 0
    this.status = status
    this.keepAlive = keepAlive && framing !== UNTIL_CLOSE && !isDecoded && !this.#client.isStopping
    const line = statusLine(status, reason)
    const passed = isDecoded ? without(fields, 'transfer-encoding') : fields
    if (status !== 101) passed.push(...connectionFields(this.keepAlive, minorVersion))
    this.#pendingHead = formatHead(line, passed)
    if (!isMore) this.flush()
    return isDecoded
  }

  /** Takes all bytes; false: wait for the client. */
  write(chunk: Buffer): boolean {
    this.bytes += chunk.length
    const head = this.#pendingHead
    if (head === undefined) return this.#client.write(chunk)
    if (chunk.length > MERGED_BODY_BYTES) {
      this.flush()
      return this.#client.write(chunk)
    }
    this.#pendingHead = undefined
    this.bytes += head.length
    const merged = Buffer.allocUnsafe(head.length + chunk.length)
    chunk.copy(merged, merged.write(head, 'latin1'))
    return this.#client.write(merged)
  }

  /** Sends a head that waits for a body. */
  flush(): void {
    const head = this.#pendingHead
    if (head === undefined) return
    this.#pendingHead = undefined
    this.bytes += head.length
    this.#client.write(Buffer.from(head, 'latin1'))
  }

  /** Sends an answer of the gateway itself, instead of any other. */
  reply(reply: LocalReply, keepAlive: boolean, now: number): void {
    const { method, minorVersion } = this.#request
    this.status = reply.status
    this.keepAlive = keepAlive
    const bytes = encodeReply(reply, { isHead: method === 'HEAD', keepAlive, minorVersion }, now)
    this.bytes += bytes.length
    this.#client.write(bytes)
  }
}

function without(fields: readonly string[], name: string): string[] {
  return fields.filter((_, at) => fields[at - (at % 2)]?.toLowerCase() !== name)
}
