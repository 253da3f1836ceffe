import { createHash } from 'node:crypto'
import { Agent, get as getPlain, type IncomingMessage } from 'node:http'
import { get as getSecure, Agent as SecureAgent } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'

const SHORT_EVERY_MS = 20
const DOWNLOADS = 10
const PATIENCE_MS = 60_000
const KEPT_CONNECTIONS = 4
const BETWEEN_TRIES_MS = 10
/** The default policy that ships lets one address have 600 requests a minute; these make 3,000. */
const ADDRESSES = 12

export interface VisitorsOptions {
  /** Origin of the ingress; the port decides where to connect. */
  readonly ingress: string
  /** PEM of the CA behind an HTTPS ingress. */
  readonly ca: string
  /** Host names that are asked for in turn. */
  readonly hosts: readonly string[]
  /** SHA-256 of the download, in hex. */
  readonly download: string
  /** How many are under way at all times; ten unless given. */
  readonly downloads?: number
  /**
   * A second ingress for short requests: who does not find the host at one asks the other, as a load
   * balancer does.
   */
  readonly other?: string
}

/** What visitors got. */
export interface Visits {
  readonly requests: number
  readonly downloads: number
  /** What went wrong, and how often. */
  readonly failed: ReadonlyMap<string, number>
  /**
   * Asked again, because a kept connection was being closed while the request was on its way: it is
   * what every client does (RFC 9110 9.2.2, RFC 9112 9.3.1), and no server can prevent it.
   */
  readonly again: number
  /** The longest that a short request took, in ms. */
  readonly worstMs: number
}

/**
 * Visitors at all times, from a dozen addresses: 50 short requests a second, on new connections and
 * on kept ones in turn, and ten downloads of five seconds, each followed by the next.
 */
export class Visitors {
  readonly #options: VisitorsOptions
  readonly #kept: Agent | SecureAgent
  readonly #under = new Set<Promise<void>>()
  readonly #short = new Set<Promise<void>>()
  #isOver = false
  #isOther = false
  #requests = 0
  #downloads = 0
  #worstMs = 0
  #again = 0
  #failed = new Map<string, number>()

  constructor(options: VisitorsOptions) {
    this.#options = options
    const kept = { keepAlive: true, maxSockets: KEPT_CONNECTIONS }
    this.#kept = this.#isSecure ? new SecureAgent(kept) : new Agent(kept)
  }

  /** Begins; `stop()` ends it. */
  start(): void {
    void this.#askShort()
    const { downloads = DOWNLOADS } = this.#options
    for (let index = 0; index < downloads; index += 1) void this.#download(index)
  }

  /** Resolves when nobody waits any more who waits now: for the change before, and not for the next. */
  async caughtUp(): Promise<void> {
    await Promise.all(this.#short)
  }

  /** Resolves when every request that was begun has ended, with what they got. */
  async stop(): Promise<Visits> {
    this.#isOver = true
    while (this.#under.size > 0) await Promise.all(this.#under)
    this.#kept.destroy()
    return {
      requests: this.#requests,
      downloads: this.#downloads,
      failed: this.#failed,
      again: this.#again,
      worstMs: this.#worstMs,
    }
  }

  get #isSecure(): boolean {
    return this.#options.ingress.startsWith('https:')
  }

  async #askShort(): Promise<void> {
    const begun = performance.now()
    for (let index = 0; !this.#isOver; index += 1) {
      this.#requests += 1
      const since = performance.now()
      const isKept = index % 2 === 1
      const visit = this.#ask(index, isKept).then((outcome) => {
        this.#worstMs = Math.max(this.#worstMs, performance.now() - since)
        this.#note(outcome)
      })
      this.#track(visit)
      this.#short.add(visit)
      void visit.finally(() => this.#short.delete(visit))
      await sleep(Math.max(0, begun + (index + 1) * SHORT_EVERY_MS - performance.now()))
    }
  }

  async #ask(index: number, isKept: boolean): Promise<string> {
    const { other } = this.#options
    const end = performance.now() + PATIENCE_MS
    for (;;) {
      const ingress = this.#ingress
      const { outcome } = await this.#get(index, '/', isKept, ingress)
      if (outcome === '200' || other === undefined || performance.now() > end) return outcome
      // Who asked meanwhile may have found out already.
      if (this.#ingress === ingress) this.#isOther = !this.#isOther
      await sleep(BETWEEN_TRIES_MS)
    }
  }

  /** Where the host was found last. */
  get #ingress(): string {
    const { ingress, other = ingress } = this.#options
    return this.#isOther ? other : ingress
  }

  async #download(index: number): Promise<void> {
    // Not all at the same moment of theirs.
    await sleep(index * 500)
    while (!this.#isOver) {
      this.#downloads += 1
      const download = this.#get(index, '/download', false).then(({ outcome, digest }) => {
        const isWhole = outcome !== '200' || digest === this.#options.download
        this.#note(isWhole ? outcome : 'download not whole', 'download: ')
      })
      this.#track(download)
      await download
    }
  }

  #track(visit: Promise<void>): void {
    this.#under.add(visit)
    void visit.finally(() => this.#under.delete(visit))
  }

  #note(outcome: string, of = ''): void {
    if (outcome === '200') return
    const key = `${of}${outcome}`
    this.#failed.set(key, (this.#failed.get(key) ?? 0) + 1)
  }

  #get(
    index: number,
    path: string,
    isKept: boolean,
    ingress: string = this.#options.ingress,
  ): Promise<{ outcome: string; digest: string }> {
    const { ca, hosts } = this.#options
    const host = hosts[index % hosts.length] ?? ''
    const { port } = new URL(ingress)
    const agent = isKept ? this.#kept : false
    const options = {
      host: '127.0.0.1',
      localAddress: `127.0.0.${2 + ((index >> 1) % ADDRESSES)}`,
      port,
      path,
      headers: { host },
      timeout: PATIENCE_MS,
    }
    const hash = createHash('sha256')
    return new Promise((resolve) => {
      const done = (outcome: string) => resolve({ outcome, digest: hash.digest('hex') })
      let isDone = false
      const end = (outcome: string) => {
        if (isDone) return
        isDone = true
        done(outcome)
      }
      let hasAnswer = false
      const onResponse = (response: IncomingMessage) => {
        hasAnswer = true
        const code = response.headers['ngrok-error-code'] ?? ''
        response.on('data', (chunk: Buffer) => hash.update(chunk))
        response.on('end', () => end(`${response.statusCode} ${code}`.trim()))
        response.on('error', (error) => end(`cut: ${error.message}`))
      }
      const request = this.#isSecure
        ? getSecure(
            { ...options, agent: agent as SecureAgent | false, servername: host, ca },
            onResponse,
          )
        : getPlain({ ...options, agent: agent as Agent | false }, onResponse)
      request.on('timeout', () => request.destroy(new Error('silent')))
      request.on('error', (error: NodeJS.ErrnoException) => {
        if (!request.reusedSocket || error.code !== 'ECONNRESET' || hasAnswer)
          return end(error.message)
        this.#again += 1
        void this.#get(index, path, false, ingress).then(resolve)
      })
    })
  }
}
