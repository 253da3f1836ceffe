import type { ClientRequest, IncomingMessage } from 'node:http'
import process from 'node:process'

/**
 * The parts of `node:http` used here. An import of that module reads all its exports. On Node 24 this also
 * loads another HTTP client and HTTP/2, which costs memory and time at every start.
 */
export const { createServer, request, STATUS_CODES } = process.getBuiltinModule('node:http')

export interface ReadAnswer {
  readonly response: IncomingMessage
  readonly text: string
}

/**
 * Sends a request and reads the whole answer. Rejects with the error of the connection, or if the answer is
 * longer than `maxBytes`.
 */
export function exchange(
  request: ClientRequest,
  content: string | undefined,
  maxBytes: number,
): Promise<ReadAnswer> {
  return new Promise((resolve, reject) => {
    request.on('error', reject)
    request.on('response', (response) => {
      boundedText(response, maxBytes).then((text) => resolve({ response, text }), reject)
    })
    request.end(content)
  })
}

/** Reads a stream as text. If it is longer than `maxBytes`, closes it and rejects. */
async function boundedText(stream: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of stream) {
    length += chunk.length
    if (length > maxBytes) throw new Error(`the answer is longer than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}
