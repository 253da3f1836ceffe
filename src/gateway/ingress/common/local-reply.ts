import type { HttpVersion } from '../../../policy/exchange/policy-exchange.ts'
import { encodeHead, statusLine } from '../syntax/message-fields.ts'

/** As gRPC reads statuses of HTTP; but a name without a device is no method that is missing. */
const STATUSES: Readonly<Record<number, number>> = {
  400: 13,
  401: 16,
  403: 7,
  404: 14,
  429: 14,
  502: 14,
  503: 14,
  504: 14,
}
const UNKNOWN = 2
/** Characters of the message: fields of a response have to stay small. */
const MESSAGE_CHARS = 256
/** Fields with more information than the status. */
const KEPT: ReadonlySet<string> = new Set(['ngrok-error-code', 'retry-after'])

/** True for a call of gRPC, which reads its errors from fields; gRPC-Web reads them otherwise. */
export function isGrpc({ fields }: { readonly fields: readonly string[] }): boolean {
  const isType = (name: string, at: number) => at % 2 === 0 && name.toLowerCase() === 'content-type'
  const at = fields.findIndex(isType)
  return /^application\/grpc(?:$|[+; ])/i.test(fields[at + 1] ?? '')
}

/** Fields of a `Trailers-Only` response with the content of the gateway's response. */
export function grpcFields({ status, fields, body }: LocalReply): string[] {
  const message = body.slice(0, MESSAGE_CHARS).trim()
  const told = [
    'content-type',
    'application/grpc',
    'grpc-status',
    String(STATUSES[status] ?? UNKNOWN),
    'grpc-message',
    encodeMessage(message),
  ]
  for (let at = 0; at < fields.length; at += 2) {
    const name = (fields[at] as string).toLowerCase()
    if (KEPT.has(name)) told.push(name, fields[at + 1] as string)
  }
  return told
}

/** Bytes of UTF-8 other than visible ASCII, and `%`, as `%XX`. */
function encodeMessage(text: string): string {
  return Array.from(Buffer.from(text), (byte) =>
    byte < 0x20 || byte > 0x7e || byte === 0x25
      ? `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
      : String.fromCharCode(byte),
  ).join('')
}

/** An answer that the gateway makes itself. `fields` has no framing: the body's length is added. */
export interface LocalReply {
  readonly status: number
  /** Name and value in turn. */
  readonly fields: readonly string[]
  readonly body: string
}

/** How the connection goes on after an answer. */
export interface ReplyFraming {
  readonly isHead: boolean
  readonly keepAlive: boolean
  readonly version: HttpVersion
}

/** The bytes of an answer, head and body. */
export function encodeReply(reply: LocalReply, framing: ReplyFraming, now: number): Buffer {
  const body = Buffer.from(reply.body)
  const fields = [...reply.fields, 'date', new Date(now).toUTCString()]
  const hasBody = reply.status >= 200 && reply.status !== 204 && reply.status !== 304
  if (hasBody) fields.push('content-length', String(body.length))
  fields.push(...connectionFields(framing.keepAlive, framing.version))
  const head = encodeHead(statusLine(reply.status), fields)
  return hasBody && !framing.isHead ? Buffer.concat([head, body]) : head
}

/** Connection fields of a response (RFC 9112 9.3); usually empty. */
export function connectionFields(keepAlive: boolean, version: HttpVersion): readonly string[] {
  if (!keepAlive) return CLOSE
  return version === '1.0' ? KEEP_ALIVE : NOTHING
}

const CLOSE = ['connection', 'close']
const KEEP_ALIVE = ['connection', 'keep-alive']
const NOTHING: string[] = []
