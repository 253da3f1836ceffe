import type { HttpVersion } from '../../../policy/exchange/policy-exchange.ts'
import { formatHead, statusLine } from '../syntax/message-text.ts'

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
  const head = Buffer.from(formatHead(statusLine(reply.status), fields), 'latin1')
  return hasBody && !framing.isHead ? Buffer.concat([head, body]) : head
}

/** What a client has to be told about its connection (RFC 9112 9.3); usually nothing. */
export function connectionFields(keepAlive: boolean, version: HttpVersion): readonly string[] {
  if (!keepAlive) return CLOSE
  return version === '1.0' ? KEEP_ALIVE : NOTHING
}

const CLOSE = ['connection', 'close']
const KEEP_ALIVE = ['connection', 'keep-alive']
const NOTHING: string[] = []
