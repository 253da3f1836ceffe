import type { Readable } from 'node:stream'

/** Calls back for each piece of content when it arrives, also while nobody reads the stream. */
export function onEachPiece(stream: Readable, onPiece: (bytes: number) => void): void {
  const push = stream.push
  stream.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk) onPiece(chunk.length)
    return push.call(stream, chunk, encoding)
  }
}
