import { once } from 'node:events'
import { type IncomingHttpHeaders, request } from 'node:http'
import { text } from 'node:stream/consumers'

export interface BrowserAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
  readonly body: any
}

export interface BrowserCall {
  readonly body?: unknown
  /** On top of what a browser sends from a page of the same origin; undefined leaves one out. */
  readonly headers?: Record<string, string | undefined>
}

/** Asks like a browser that has a page of `baseUrl` open: same origin, one cookie kept. */
export class ConsoleBrowser {
  readonly #baseUrl: string
  cookie: string | undefined

  constructor(baseUrl: string) {
    this.#baseUrl = baseUrl
  }

  async call(method: string, path: string, { body, headers }: BrowserCall = {}) {
    const sent: Record<string, string | undefined> = {
      'sec-fetch-site': 'same-origin',
      'svc-version': '2',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(this.cookie === undefined ? {} : { cookie: this.cookie }),
      ...headers,
    }
    const outgoing = request(`${this.#baseUrl}${path}`, {
      method,
      headers: Object.fromEntries(Object.entries(sent).filter(([, value]) => value !== undefined)),
    })
    outgoing.end(body === undefined || typeof body === 'string' ? body : JSON.stringify(body))
    const [response] = await once(outgoing, 'response')
    const setCookie: string | undefined = response.headers['set-cookie']?.[0]
    if (setCookie !== undefined) this.cookie = setCookie.split(';')[0]
    const answered = await text(response)
    const isJson = String(response.headers['content-type']).startsWith('application/json')
    const answer: BrowserAnswer = {
      status: response.statusCode,
      headers: response.headers,
      text: answered,
      body: isJson ? JSON.parse(answered) : undefined,
    }
    return answer
  }

  signIn(apiKey: string): Promise<BrowserAnswer> {
    return this.call('POST', '/console/session', { body: { api_key: apiKey } })
  }
}
