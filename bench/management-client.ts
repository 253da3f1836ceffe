import { Agent, get } from 'node:http'

/** What one key may ask in a minute. */
const REQUESTS_PER_KEY = 120

/** One keep-alive connection to the management API; a key that has had its fill makes room. */
export class ManagementClient {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 })
  readonly #baseUrl: string
  readonly #keys: readonly string[]
  #requests = 0

  constructor(baseUrl: string, keys: readonly string[]) {
    this.#baseUrl = baseUrl
    this.#keys = keys
  }

  /** Follows a list to its end: milliseconds from each request to the last byte of the answer. */
  async walk(collection: string, query = ''): Promise<number[]> {
    const pageMs: number[] = []
    let uri: string | null = `${this.#baseUrl}/${collection}?limit=100${query}`
    while (uri) {
      const startedAt = performance.now()
      const text = await this.#get(uri)
      pageMs.push(performance.now() - startedAt)
      uri = (JSON.parse(text) as { next_page_uri: string | null }).next_page_uri
    }
    return pageMs
  }

  close(): void {
    this.#agent.destroy()
  }

  #get(uri: string): Promise<string> {
    const key = this.#keys[Math.floor(this.#requests / REQUESTS_PER_KEY)]
    if (key === undefined) throw new Error('too few API keys for so many requests')
    this.#requests += 1
    const headers = { authorization: `Bearer ${key}`, 'svc-version': '2' }
    return new Promise((resolve, reject) => {
      get(uri, { agent: this.#agent, headers }, (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk
        })
        response.on('error', reject)
        response.on('end', () => {
          if (response.statusCode === 200) resolve(text)
          else reject(new Error(`${uri}: ${response.statusCode} ${text}`))
        })
      }).on('error', reject)
    })
  }
}
