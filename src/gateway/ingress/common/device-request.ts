import { formatHead } from '../syntax/message-text.ts'
import type { RequestBody } from './request-body.ts'

/** A request as it goes to a device, whichever version of HTTP its service speaks. */
export interface DeviceRequest {
  readonly method: string
  readonly target: string
  /** Name and value in turn; where the body ends is said as in HTTP/1.1. */
  readonly fields: readonly string[]
  /** The body, when it is known as a whole. */
  readonly content: Buffer | undefined
  /** What follows as it comes; undefined when there is `content`, or no body at all. */
  readonly body: RequestBody | undefined
}

/** The bytes of the head in HTTP/1.1, and those of the body that is known as a whole. */
export function encodeHttp1({ method, target, fields, content }: DeviceRequest): Buffer {
  const head = Buffer.from(formatHead(`${method} ${target} HTTP/1.1`, fields), 'latin1')
  return content ? Buffer.concat([head, content]) : head
}

/** How many bytes that is. */
export function sizeOf({ method, target, fields, content }: DeviceRequest): number {
  const line = method.length + target.length + ' '.length + ' HTTP/1.1\r\n'.length
  const texts = fields.reduce((sum, { length }) => sum + length + ': '.length, 0)
  return line + texts + '\r\n'.length + (content?.length ?? 0)
}
