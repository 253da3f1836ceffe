import type { Duplex } from 'node:stream'
import { AppError } from '../base/app-error.ts'
import { PROBLEM_TYPE, problemDetails } from './problem-details.ts'

const CODES = {
  HPE_HEADER_OVERFLOW: ['headers-too-large', 'The request line and headers exceed 16 KiB.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['request-timeout', 'The request was not received in time.'],
} as const

/** Answers what Node's parser refused, as problem details like every other error, and hangs up. */
export function answerMalformedRequest(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const [code, detail] = CODES[error.code as keyof typeof CODES] ?? [
    'malformed-request',
    'The request is not valid HTTP/1.1.',
  ]
  const refusal = new AppError(code, detail)
  const body = JSON.stringify(problemDetails(refusal))
  const head = [
    `HTTP/1.1 ${refusal.status} ${refusal.title}`,
    `content-type: ${PROBLEM_TYPE}`,
    `content-length: ${Buffer.byteLength(body)}`,
    'cache-control: no-store',
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`)
}
