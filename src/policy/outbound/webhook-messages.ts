import { anyOf, isRecent, MISMATCH, type SignedRequest, STALE, type Verify } from './webhook-mac.ts'

/** As its own library writes them, with two backslashes. */
const HYGRAPH_ESCAPES: Readonly<Record<string, string>> = {
  '&': '\\\\u0026',
  '<': '\\\\u003c',
  '>': '\\\\u003e',
}
/** More than Contentful sends. */
const MAX_SIGNED_HEADERS = 50
/** What HubSpot signs as it is, although it stands encoded in the address. */
const HUBSPOT_DECODED = /%(?:3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)/gi

/** Body and time, with one or both of two keys: one of them is being replaced. */
export const verifyBox: Verify = ({ headers, body, secret, now }) => {
  const time = headers.get('box-delivery-timestamp') ?? ''
  if (!isRecent(time, now)) return STALE
  const names = ['box-signature-primary', 'box-signature-secondary']
  const presented = names.flatMap((name) => headers.get(name) ?? []).join(',')
  const signed = Buffer.concat([body, Buffer.from(time)])
  return anyOf(presented, { encoding: 'base64' }, secret, signed)
}

/** Method, path, the headers that it names, and body, each on a line. */
export const verifyContentful: Verify = ({ method, url, headers, body, secret, now }) => {
  const names = (headers.get('x-contentful-signed-headers') ?? '').toLowerCase().split(',')
  // What it does not name, it has not signed.
  const isTimed = names.includes('x-contentful-timestamp')
  if (!isTimed || !isRecent(headers.get('x-contentful-timestamp') ?? '', now)) return STALE
  if (names.length > MAX_SIGNED_HEADERS) return MISMATCH
  const fields = names.map((name) => `${name}:${headers.get(name)?.trim() ?? ''}`)
  const lead = [method, pathOf(url), fields.join(';'), ''].join('\n')
  return anyOf(headers.get('x-contentful-signature'), {}, secret, join(lead, body))
}

/** The third version of its signatures: method, address, body and time. */
export const verifyHubSpot: Verify = ({ method, url, headers, body, secret, now }) => {
  const time = headers.get('x-hubspot-request-timestamp') ?? ''
  if (!isRecent(time, now)) return STALE
  const address = url.replace(HUBSPOT_DECODED, decodeURIComponent)
  const signed = Buffer.concat([join(method + address, body), Buffer.from(time)])
  return anyOf(headers.get('x-hubspot-signature-v3'), { encoding: 'base64' }, secret, signed)
}

/** Body, environment and time as an object of JSON, in which HTML would do no harm. */
export const verifyHygraph: Verify = ({ headers, body, secret, now }) => {
  const parts = /^sign=([^,]*), env=([^,]*), t=(\d+)$/.exec(headers.get('gcms-signature') ?? '')
  const [, presented, environment, time = ''] = parts ?? []
  if (!isRecent(time, now)) return STALE
  const fields = { Body: body.toString(), EnvironmentName: environment, TimeStamp: Number(time) }
  const signed = JSON.stringify(fields).replace(/[&<>]/g, (it) => HYGRAPH_ESCAPES[it] ?? it)
  return anyOf(presented, { encoding: 'base64' }, secret, Buffer.from(signed))
}

/** The body, in which its time stands. */
export const verifyLinear: Verify = ({ headers, body, secret, now }) => {
  const time = fieldIn(body, 'webhookTimestamp')
  if (time !== undefined && !isRecent(String(time), now)) return STALE
  return anyOf(headers.get('linear-signature'), {}, secret, body)
}

/** Time and a token, which stand in the body; it signs nothing else of it. */
export const verifyMailgun: Verify = ({ body, secret, now }) => {
  const { timestamp, token, signature } = signatureIn(body)
  if (!isRecent(timestamp, now)) return STALE
  return anyOf(signature, {}, secret, Buffer.from(timestamp + token))
}

function signatureIn(body: SignedRequest['body']) {
  const none = { timestamp: '', token: '', signature: undefined }
  const found = fieldIn(body, 'signature')
  if (typeof found !== 'object' || found === null) return none
  const { timestamp, token, signature } = found as Record<string, unknown>
  if (typeof token !== 'string' || typeof signature !== 'string') return none
  return { timestamp: String(timestamp), token, signature }
}

/** What stands below a name in an object of JSON; undefined where there is none. */
function fieldIn(body: SignedRequest['body'], name: string): unknown {
  try {
    return (JSON.parse(body.toString()) as Record<string, unknown> | null)?.[name]
  } catch {
    return undefined
  }
}

function pathOf(url: string): string {
  const { pathname, search } = new URL(url)
  return pathname + search
}

const join = (lead: string, body: Buffer) => Buffer.concat([Buffer.from(lead), body])
