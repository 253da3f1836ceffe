import * as z from 'zod'
import type { LimiterDump } from './rate-limiter.ts'

const WORD_BYTES = 4
const KEY_BYTES = 8

const Base64 = z.base64().transform((text) => Buffer.from(text, 'base64'))
const Rows = Base64.refine(({ length }) => length % WORD_BYTES === 0).transform(toWords)

/** What a limiter has counted, as fields of a JSON object: base64. Reads a `LimiterDump`. */
export const DUMP_FIELDS = {
  key: Base64.refine(({ length }) => length === KEY_BYTES),
  rows: z.tuple([Rows, Rows, Rows]),
}

export interface DumpText {
  readonly key: string
  readonly rows: readonly string[]
}

export function dumpText({ key, rows }: LimiterDump): DumpText {
  return { key: key.toString('base64'), rows: rows.map(toBase64) }
}

function toBase64({ buffer, byteOffset, byteLength }: Int32Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64')
}

function toWords(bytes: Buffer): Int32Array {
  const words = new Int32Array(bytes.length / WORD_BYTES)
  bytes.copy(Buffer.from(words.buffer))
  return words
}
