import { readFileSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { type PublicRequest, type PublicResponse, publicRequest } from './public-request.ts'
import type { RunningGateway } from './running-gateway.ts'

const MAX_STEPS = 12

export interface BrowserAnswer extends PublicResponse {
  readonly url: URL
}

type Options = Pick<PublicRequest, 'method' | 'headers' | 'body'>

/** A browser as far as a sign-in needs one: cookies by host and path-less, and redirects. */
export class VisitorBrowser {
  #running: RunningGateway
  /** By host name, then by name. */
  readonly cookies = new Map<string, Map<string, string>>()
  /** Set-Cookie values that came, in turn. */
  readonly received: string[] = []

  constructor(running: RunningGateway) {
    this.#running = running
  }

  /** Goes on with another process of the gateway. */
  useGateway(running: RunningGateway): void {
    this.#running = running
  }

  /** The address of an endpoint as visitors know it. */
  urlOf(host: string, path = '/'): string {
    return `https://${host}:${this.#running.addresses.https.port}${path}`
  }

  cookieNames(host: string): string[] {
    return Array.from(this.cookies.get(host)?.keys() ?? [])
  }

  /** One request, without following where it leads. */
  async send(text: string, options: Options = {}): Promise<BrowserAnswer> {
    const url = new URL(text)
    const jar = this.cookies.get(url.hostname) ?? new Map<string, string>()
    this.cookies.set(url.hostname, jar)
    const cookie = Array.from(jar, ([name, value]) => `${name}=${value}`).join('; ')
    const headers = { ...(cookie !== '' && { cookie }), ...options.headers }
    const answer = await this.#exchange(url, { ...options, headers })
    for (const field of answer.headers['set-cookie'] ?? []) {
      this.received.push(field)
      const [pair = ''] = field.split(';')
      const name = pair.slice(0, pair.indexOf('='))
      if (/; *max-age=0(;|$)|expires=Thu, 01 Jan 1970/i.test(field)) jar.delete(name)
      else jar.set(name, pair.slice(name.length + 1))
    }
    return { ...answer, url }
  }

  /** Follows redirects until a page comes, or one of `until`, which is not asked for. */
  async open(text: string, until?: (url: URL) => boolean): Promise<BrowserAnswer> {
    let answer = await this.send(text)
    for (let step = 0; step < MAX_STEPS; step += 1) {
      const { location } = answer.headers
      if (location === undefined) return answer
      const next = new URL(location, answer.url)
      if (until?.(next)) return { ...answer, url: next }
      answer = await this.send(next.href)
    }
    throw new Error(`no end of redirects at ${answer.url}`)
  }

  /** Opens a page and signs in as somebody where the provider asks. */
  async signIn(text: string, login: string, until?: (url: URL) => boolean): Promise<BrowserAnswer> {
    let answer = await this.open(text, until)
    for (let step = 0; step < 2 && ['login', 'consent'].includes(answer.text); step += 1) {
      answer = await this.submit(answer, `login=${login}`, until)
    }
    return answer
  }

  /** Answers a form of the provider. */
  async submit(form: BrowserAnswer, body: string, until?: (url: URL) => boolean) {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const sent = await this.send(form.url.href, { method: 'POST', headers, body })
    const { location } = sent.headers
    if (location === undefined) return sent
    const next = new URL(location, form.url)
    return until?.(next) ? { ...sent, url: next } : this.open(next.href, until)
  }

  #exchange(url: URL, options: Options): Promise<PublicResponse> {
    const { https, caCertPath } = this.#running.addresses
    const path = `${url.pathname}${url.search}`
    if (url.protocol === 'https:') {
      const ingress = `https://127.0.0.1:${https.port}`
      const ca = readFileSync(caCertPath, 'utf8')
      return publicRequest({ ingress, host: url.hostname, path, ca, ...options })
    }
    return plainRequest(url, options)
  }
}

/** A request to a server beside the gateway. */
function plainRequest(url: URL, { method, headers, body }: Options): Promise<PublicResponse> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method, headers: { ...headers } }, async (response) => {
      const chunks: Buffer[] = []
      for await (const chunk of response) chunks.push(chunk as Buffer)
      const bytes = Buffer.concat(chunks)
      const { statusCode: status = 0, headers } = response
      resolve({ status, headers, body: bytes, text: bytes.toString() })
    })
    request.on('error', reject)
    request.end(body)
  })
}
