import { type Answer, sendRequest } from './serve-http.ts'

export interface PageCall {
  readonly body?: unknown
  /** On top of what a browser sends from a page of the same origin; undefined leaves one out. */
  readonly headers?: Readonly<Record<string, string | undefined>>
}

/** Asks like a browser that has the device page open: same origin, one cookie kept. */
export class PageBrowser {
  readonly #port: number
  cookie: string | undefined

  constructor(port: number) {
    this.#port = port
  }

  async call(method: string, path: string, { body, headers }: PageCall = {}): Promise<Answer> {
    const sent: Record<string, string | undefined> = {
      host: `127.0.0.1:${this.#port}`,
      'sec-fetch-site': 'same-origin',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(this.cookie === undefined ? {} : { cookie: this.cookie }),
      ...headers,
    }
    const given = Object.entries(sent).filter((it): it is [string, string] => it[1] !== undefined)
    const answer = await sendRequest(
      { port: this.#port },
      {
        method,
        path,
        headers: Object.fromEntries(given),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      },
    )
    const [setCookie] = [answer.headers['set-cookie'] ?? []].flat()
    if (setCookie !== undefined) this.cookie = setCookie.split(';')[0]
    return answer
  }

  signIn(body: { code: string } | { token: string }): Promise<Answer> {
    return this.call('POST', '/page/session', { body })
  }
}
