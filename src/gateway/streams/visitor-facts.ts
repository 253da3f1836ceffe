import { isIP } from 'node:net'
import * as z from 'zod'

/** The type of a visitor's stream on the link to another gateway. */
export const VISITOR_STREAM_TYPE = 2

/**
 * Why a stream of a visitor was reset, beside the codes of muxado's own; the numbers are part of the
 * protocol.
 */
export const HopReset = {
  /** The transfer was aborted: the received data is incomplete. */
  broken: 0x100,
  /** A policy has closed the connection. */
  policyClosed: 0x101,
  /** The endpoint is not served here. Nothing was counted, and nothing was sent on. */
  notMine: 0x102,
} as const
export type HopReset = (typeof HopReset)[keyof typeof HopReset]

/** Length of the facts, big-endian, before the facts. */
const LENGTH_BYTES = 2
/** Two certificates of any length that is read, and the rest. Most fit into the frame that opens a stream. */
const MAX_FACTS_BYTES = 36_864
/** How many homes one request of a visitor may go on to: as many as policies may hand it on. */
export const MAX_HOPS = 5

const ip = z.string().refine((text) => isIP(text) !== 0, 'must be an IP address')
const port = z.number().int().min(0).max(65_535)
const host = z.string().min(1).max(270)
/** Longest certificate in DER: one with post-quantum signatures and keys has 8 KB. */
export const MAX_CERTIFICATE_BYTES = 12_288
const certificate = z.string().max((MAX_CERTIFICATE_BYTES / 3) * 4)

const TlsFactsSchema = z.strictObject({
  version: z.string().max(16),
  cipher: z.string().max(64),
  server_name: z.string().max(255),
  alpn: z.string().max(255),
  /** Base64 of the DER, as in the following fields. */
  server_certificate: certificate.optional(),
  client_certificate: certificate.optional(),
})

/** A policy passed the request on, or sent it: the account whose internal endpoints it can find. */
const InternalFactsSchema = z.strictObject({
  owner_id: z.string().max(64).nullable(),
  /**
   * URL of the internal endpoint with the final request fields. Undefined: a policy sends the request to the
   * name in `host`.
   */
  url: z
    .url({ protocol: /^https?$/ })
    .max(300)
    .optional(),
  /** How many policies have asked each other. */
  ask_depth: z.number().int().min(0).max(255),
  /** How many endpoints have handed it on. */
  hops: z.number().int().min(0).max(MAX_HOPS),
  /** The cookies of a log-in are no business of the device. */
  withholds_login: z.boolean(),
})
export type InternalFacts = z.infer<typeof InternalFactsSchema>

/** How a stream goes on behind its facts. */
const EntrySchema = z.discriminatedUnion('kind', [
  /** Requests of HTTP/1.1, one after the other. */
  z.strictObject({
    kind: z.literal('http'),
    scheme: z.enum(['http', 'https']),
    tls: TlsFactsSchema.optional(),
    internal: InternalFactsSchema.optional(),
  }),
  /** The bytes of TLS, from the first. */
  z.strictObject({ kind: z.literal('tls'), server_name: host }),
  /** The bytes of a connection to a TCP endpoint, by the address of that. */
  z.strictObject({ kind: z.literal('tcp'), address: host }),
  /** The bytes of a connection that a policy has handed on to an internal endpoint of TCP or TLS. */
  z.strictObject({
    kind: z.literal('handed'),
    url: z.url({ protocol: /^(?:tcp|tls)$/ }).max(300),
    /** Account whose internal endpoints it can find. */
    owner_id: z.string().max(64).nullable(),
    hops: z.number().int().min(1).max(MAX_HOPS),
    /** TLS that has ended before it was handed on. */
    tls: TlsFactsSchema.optional(),
  }),
])
export type VisitorEntry = z.infer<typeof EntrySchema>
export type HttpEntry = Extract<VisitorEntry, { readonly kind: 'http' }>

/** Facts about a visitor's connection for the serving node, once for each stream. */
const VisitorFactsSchema = z.strictObject({
  version: z.literal(1),
  /** The same for all streams of one connection; of the node that it came to. */
  connection: z.number().int().min(1).max(Number.MAX_SAFE_INTEGER),
  client_ip: ip,
  client_port: port,
  server_ip: ip,
  server_port: port,
  /** Milliseconds since the epoch. */
  started_at: z.number().int().min(0).max(Number.MAX_SAFE_INTEGER),
  entry: EntrySchema,
})
export type VisitorFacts = z.infer<typeof VisitorFactsSchema>

/** With the length in front. Throws when that is more than is read. */
export function encodeFacts(facts: VisitorFacts): Buffer {
  const text = JSON.stringify(facts)
  const length = Buffer.byteLength(text)
  if (length > MAX_FACTS_BYTES) throw new Error('the visitor details are too long')
  const bytes = Buffer.allocUnsafe(LENGTH_BYTES + length)
  bytes.write(text, bytes.writeUInt16BE(length))
  return bytes
}

/** Reads facts from the begin of a stream, however its bytes are cut. */
export class FactsReader {
  #bytes: Buffer = Buffer.alloc(0)

  /** The complete facts with the bytes after them; undefined if incomplete. Throws if they are invalid. */
  push(chunk: Buffer): { readonly facts: VisitorFacts; readonly rest: Buffer } | undefined {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk])
    if (this.#bytes.length < LENGTH_BYTES) return undefined
    const end = LENGTH_BYTES + this.#bytes.readUInt16BE()
    if (end > LENGTH_BYTES + MAX_FACTS_BYTES) throw new Error('the visitor details are too long')
    if (this.#bytes.length < end) return undefined
    const text = this.#bytes.toString('utf8', LENGTH_BYTES, end)
    return { facts: VisitorFactsSchema.parse(JSON.parse(text)), rest: this.#bytes.subarray(end) }
  }
}
