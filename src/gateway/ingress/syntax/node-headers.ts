import type { OutgoingHttpHeaders } from 'node:http2'

/** What a connection of HTTP/1 says about itself; in HTTP/2 it makes a message malformed (RFC 9113 8.2.2). */
const OF_HTTP1: ReadonlySet<string> = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
])

/** What cannot be put in one line, or is not by everybody (RFC 9110 5.3). */
const OF_SEVERAL_LINES: ReadonlySet<string> = new Set([
  'cookie',
  'proxy-authenticate',
  'set-cookie',
  'www-authenticate',
])

/** Fields of HTTP/1, name and value in turn, as Node takes them for a stream. */
export function headersOf(fields: readonly string[]): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = Object.create(null)
  for (let at = 0; at < fields.length; at += 2) {
    const name = (fields[at] as string).toLowerCase()
    if (OF_HTTP1.has(name)) continue
    const value = fields[at + 1] as string
    const before = headers[name]
    if (before === undefined) headers[name] = value
    else if (!OF_SEVERAL_LINES.has(name)) headers[name] = `${before}, ${value}`
    else if (Array.isArray(before)) before.push(value)
    else headers[name] = [String(before), value]
  }
  return headers
}
