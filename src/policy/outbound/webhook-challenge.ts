import { createHmac } from 'node:crypto'
import { type Outcome, respond } from '../exchange/outcome.ts'
import type { SignedRequest } from './webhook-mac.ts'

/** Longer than what any provider asks with. */
const MAX_TOKEN = 256
/** What Twitter asks with. A signature of it is that of no event, which is an object of JSON. */
const TOKEN = /^[\w+/=-]+$/
const ZOOM_ASKS = 'endpoint.url_validation'

/** The answer to a question that only its receiver knows; undefined for a request like others. `failure`: why its signature does not hold. */
export type Challenge = (request: SignedRequest, failure: string | undefined) => Outcome | undefined

/** Providers that ask who answers, by the name that documents have for them. */
export const WEBHOOK_CHALLENGES: Readonly<Record<string, Challenge>> = {
  // https://docs.x.com/x-api/webhooks/quickstart: asks without a signature, every hour.
  twitter({ method, url, secret }) {
    const token = new URLSearchParams(url.split('?', 2)[1]).get('crc_token')
    if (method !== 'GET' || !isToken(token) || secret === '') return undefined
    const mac = createHmac('sha256', secret).update(token).digest('base64')
    return json({ response_token: `sha256=${mac}` })
  },
  // https://docs.connect.worldline-solutions.com/documentation/webhooks/
  worldline({ method, headers }) {
    const token = headers.get('x-gcs-webhooks-endpoint-verification') ?? null
    return method === 'GET' && isToken(token) ? answer('text/plain', token) : undefined
  },
  // Signed as what follows is.
  zoom({ body, secret }, failure) {
    const token = failure === undefined ? zoomToken(body) : undefined
    if (token === undefined) return undefined
    const mac = createHmac('sha256', secret).update(token).digest('hex')
    return json({ plainToken: token, encryptedToken: mac })
  },
}

/** What is said to those who ask with signatures that are wrong, and want to be told so in a way of their own. */
export const WEBHOOK_REFUSALS: Readonly<Record<string, Outcome>> = {
  // https://developer.xero.com/documentation/webhooks/configuring-your-server
  xero: respond({
    status: 401,
    errorCode: 'ERR_NGROK_3204',
    headers: ['ngrok-error-code', 'ERR_NGROK_3204'],
    body: '',
  }),
}

function zoomToken(body: Buffer): string | undefined {
  try {
    const { event, payload } = JSON.parse(body.toString())
    const token = event === ZOOM_ASKS ? payload.plainToken : undefined
    return typeof token === 'string' && token.length <= MAX_TOKEN ? token : undefined
  } catch {
    return undefined
  }
}

function isToken(text: string | null): text is string {
  return text !== null && text.length <= MAX_TOKEN && TOKEN.test(text)
}

const json = (value: object) => answer('application/json', JSON.stringify(value))

function answer(type: string, body: string): Outcome {
  const headers = ['content-type', type, 'cache-control', 'no-store']
  return respond({ status: 200, headers: [...headers, 'x-content-type-options', 'nosniff'], body })
}
