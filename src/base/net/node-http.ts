import type { ClientRequest, IncomingMessage } from 'node:http'
import process from 'node:process'

/**
 * What is used of `node:http`. An import of that module reads every one of its exports, and with them
 * Node 24 loads another HTTP client and HTTP/2, which take memory and time from every start.
 */
export const { createServer, request, STATUS_CODES } = process.getBuiltinModule('node:http')

export interface ReadAnswer {
  readonly response: IncomingMessage
  readonly text: string
}

/** Sends a request and reads the whole answer; rejects with what the connection says, or when it is longer. */
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

/** All that comes, as text. Lets go of the stream and rejects when it is longer. */
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
