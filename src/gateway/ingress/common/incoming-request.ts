import type { Clock } from '../../../base/clock.ts'
import type { BodyTransform } from '../../../policy/exchange/policy-exchange.ts'
import { encodeHead, lengthOfFields, withoutFields } from '../syntax/message-fields.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { BodyPipe } from './body-pipe.ts'
import { type BodySource, RequestBody } from './request-body.ts'

/** A request as it goes to a device, whichever version of HTTP its service speaks. */
export interface DeviceRequest {
  readonly method: string
  readonly target: string
  /** Name and value in turn; where the body ends is said as in HTTP/1.1. */
  readonly fields: readonly string[]
  /** The body, when it is known as a whole. */
  readonly content: Buffer | undefined
  /** The rest of the body as it arrives; undefined with `content`, or without a body. */
  readonly body: RequestBody | undefined
}

/** Encodes the head in HTTP/1.1, and the body if it is known completely. */
export function encodeHttp1({ method, target, fields, content }: DeviceRequest): Buffer {
  const head = encodeHead(`${method} ${target} HTTP/1.1`, fields)
  return content ? Buffer.concat([head, content]) : head
}

/** How many bytes that is. */
export function sizeOf({ method, target, fields, content }: DeviceRequest): number {
  const line = method.length + target.length + ' '.length + ' HTTP/1.1\r\n'.length
  return line + lengthOfFields(fields) + '\r\n'.length + (content?.length ?? 0)
}

/** Memory of an exchange without its fields, and of one read of a socket. */
const HEAD_BYTES = 2_048
const BODY_PIECE_BYTES = 65_536
const NO_CONTENT = Buffer.alloc(0)

/** Sender of a request. */
export interface RequestSource extends BodySource {
  /** Tells it to send the body (RFC 9110 10.1.1). */
  sayContinue(): void
}

/** A client's request: its head, its body as it comes, and whether the client was told to send it. */
export class IncomingRequest {
  readonly head: RequestHead
  /** Undefined if the head announces no body. */
  readonly body: RequestBody | undefined
  readonly #client: RequestSource
  #isContinued = false
  #isAccepted = false
  /** Bytes of the content that goes on as a whole. */
  #collectedBytes = 0

  constructor(head: RequestHead, client: RequestSource, clock: Clock) {
    this.head = head
    this.#client = client
    this.body = head.framing === 0 ? undefined : new RequestBody(head.framing, client, clock)
  }

  /** True when its last byte has come. */
  get isDone(): boolean {
    return this.body === undefined || this.body.isDone
  }

  /** Bytes of the body so far, as framed. */
  get bodyBytes(): number {
    return this.body?.bytes ?? 0
  }

  /** Bytes of the body that wait, or are kept as a whole until the exchange is over. */
  get heldBytes(): number {
    return (this.body?.heldBytes ?? 0) + this.#collectedBytes
  }

  /** Bytes that it may hold while it waits: a body stops after one unrequested piece. */
  get memoryBytes(): number {
    const { body } = this
    const texts = this.head.fields.reduce((sum, { length }) => sum + length, HEAD_BYTES)
    return texts + (body ? Math.max(this.heldBytes, body.isDone ? 0 : BODY_PIECE_BYTES) : 0)
  }

  /** True while it is the client's turn to send more of the body. */
  get isAwaited(): boolean {
    const { body } = this
    return body !== undefined && !body.isDone && !body.isBlocked && !this.isUnasked
  }

  /**
   * Whether the client waits for a 100, as it may. After another response, it is unknown whether the body
   * follows (RFC 9110 10.1.1).
   */
  get isUnasked(): boolean {
    const { body } = this
    if (!body || body.bytes > 0) return false
    return this.head.expectsContinue && !this.#isContinued
  }

  /** Whether the rest of the body is at most this long, and certain to arrive. */
  isShort(maxBytes: number): boolean {
    return this.isDone || (!this.isUnasked && this.head.framing <= maxBytes)
  }

  /**
   * Records that the client was asked to continue (RFC 9110 10.1.1). Returns false if it was asked before.
   */
  markContinued(): boolean {
    if (this.#isContinued) return false
    this.#isContinued = true
    return true
  }

  /** Marks that another node has heard that it may send the body; false when it has before. */
  markAccepted(): boolean {
    if (this.#isAccepted || !this.body) return false
    this.#isAccepted = true
    return true
  }

  /** Media types that the client accepts (RFC 9110 12.5.1), of all lines. */
  get accept(): string {
    const { fields } = this.head
    const isAccept = (at: number) => at % 2 === 1 && fields[at - 1]?.toLowerCase() === 'accept'
    return fields.filter((_, at) => isAccept(at)).join()
  }

  /** The whole content, before the body flows anywhere; undefined when it is longer. */
  readBody(maxBytes: number): Promise<Buffer | undefined> {
    if (!this.body) return Promise.resolve(NO_CONTENT)
    this.#invite()
    return this.body.readAll(maxBytes)
  }

  /** As it goes to a device; the body follows as it comes. */
  toDevice(target: string, fields: readonly string[]): DeviceRequest {
    const { method } = this.head
    const kept = this.#isContinued ? withoutFields(fields, 'expect') : fields
    return { method, target, fields: kept, content: undefined, body: this.body }
  }

  /** The same with the complete content, whatever length the fields stated. */
  toDeviceWhole(target: string, fields: readonly string[], content: Buffer): DeviceRequest {
    const { method } = this.head
    const kept = withoutFields(fields, 'content-length', 'transfer-encoding', 'expect')
    kept.push('Content-Length', String(content.length))
    return { method, target, fields: kept, content, body: undefined }
  }

  /** Reads the content through transforms. One of the two is called once, in a later turn. */
  transform(
    body: RequestBody,
    transforms: readonly BodyTransform[],
    onContent: (content: Buffer) => void,
    onError: (error: Error) => void,
  ): BodyPipe {
    this.#invite()
    const content: Buffer[] = []
    const pipe = new BodyPipe(transforms, {
      write: (part) => {
        content.push(part)
        return true
      },
      end: () => {
        const whole = Buffer.concat(content)
        this.#collectedBytes = whole.length
        onContent(whole)
      },
      onRoom: () => body.onRoom(),
      onError,
    })
    const collecting = {
      write: (part: Buffer) => {
        this.#collectedBytes += part.length
        return pipe.write(part)
      },
      end: () => pipe.end(),
    }
    body.flowTo(collecting, 'content')
    return pipe
  }

  /** The gateway itself needs the body, so it requests it (RFC 9110 10.1.1). */
  #invite(): void {
    if (this.head.expectsContinue && this.markContinued()) this.#client.sayContinue()
  }
}
