import { Agent, get, type IncomingMessage } from 'node:http'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import type { TrialHost } from './devices.ts'
import { ENTRANCES, type Entrance, type Visit, type VisitLog } from './visit-log.ts'

/** Each name at each entrance. */
const EVERY_MS = 1_000
const PATIENCE_MS = 20_000
/** Of one name at one entrance; a gateway lets a bounded number wait. */
const MAX_WAITING = 4
const DOWNLOADS = 6
const DOWNLOAD_BYTES = 409_600
/** No gateway may take them for one visitor. */
const ADDRESSES = 60

export interface CrowdOptions {
  readonly hosts: readonly TrialHost[]
  readonly addressOf: (entrance: Entrance) => ListenAddress
  readonly log: VisitLog
}

/**
 * Visitors of each name, once a second at each entrance, on new connections and on kept ones in
 * turn; and downloads of five seconds, while they are wanted.
 */
export class Crowd {
  readonly #options: CrowdOptions
  readonly #kept = new Map(
    ENTRANCES.map((entrance) => [entrance, new Agent({ keepAlive: true, maxSockets: 200 })]),
  )
  readonly #under = new Set<Promise<void>>()
  readonly #waiting = new Map<string, number>()
  readonly #closed = new Set<Entrance>()
  #isOver = false
  #wantsDownloads = false

  constructor(options: CrowdOptions) {
    this.#options = options
  }

  start(): void {
    const { hosts } = this.#options
    const lanes = hosts.flatMap((host) => ENTRANCES.map((entrance) => ({ host, entrance })))
    for (const [at, lane] of lanes.entries()) {
      void this.#visitOften(lane.host, lane.entrance, at, (at / lanes.length) * EVERY_MS)
    }
  }

  /** Nobody comes in there until `open()`: a gateway that is stopped takes no connections. */
  close(entrance: Entrance): void {
    this.#closed.add(entrance)
  }

  open(entrance: Entrance): void {
    this.#closed.delete(entrance)
  }

  /** Downloads by the balancer, one after another, until `endDownloads()`. */
  beginDownloads(): void {
    this.#wantsDownloads = true
    const hosts = this.#options.hosts.filter(
      ({ isLimited, kind }) => !isLimited && kind !== 'cloud',
    )
    for (let n = 0; n < DOWNLOADS; n += 1) {
      // Of all kinds of devices.
      const host = hosts[Math.floor((n / DOWNLOADS) * hosts.length)]
      if (host) void this.#downloadOn(host, n)
    }
  }

  /** Resolves when those that were begun have ended. */
  async endDownloads(): Promise<void> {
    this.#wantsDownloads = false
    await Promise.all(this.#under)
  }

  /** Resolves when everything that was begun has ended. */
  async stop(): Promise<void> {
    this.#isOver = true
    await this.endDownloads()
    for (const agent of this.#kept.values()) agent.destroy()
  }

  async #visitOften(
    host: TrialHost,
    entrance: Entrance,
    lane: number,
    firstMs: number,
  ): Promise<void> {
    const begun = performance.now() + firstMs
    for (let n = 0; ; n += 1) {
      await sleep(Math.max(0, begun + n * EVERY_MS - performance.now()))
      if (this.#isOver) return
      const waiting = this.#waiting.get(`${lane}`) ?? 0
      if (this.#closed.has(entrance) || waiting >= MAX_WAITING) continue
      this.#waiting.set(`${lane}`, waiting + 1)
      const visit = this.#get(host.host, entrance, lane, { isKept: n % 2 === 1, path: '/' })
      this.#track(
        visit.then((it) => {
          this.#waiting.set(`${lane}`, (this.#waiting.get(`${lane}`) ?? 1) - 1)
          this.#options.log.add(it)
        }),
      )
    }
  }

  async #downloadOn({ host }: TrialHost, n: number): Promise<void> {
    // Not all at the same moment of theirs.
    await sleep(n * 700)
    while (this.#wantsDownloads && !this.#isOver) {
      const options = { isKept: false, path: '/download' }
      const visit = this.#get(host, 'balancer', n, options).then((it) => {
        this.#options.log.add({ ...it, isDownload: true })
      })
      this.#track(visit)
      await visit
    }
  }

  #track(visit: Promise<void>): void {
    this.#under.add(visit)
    void visit.finally(() => this.#under.delete(visit))
  }

  #get(
    host: string,
    entrance: Entrance,
    lane: number,
    { isKept, path }: { readonly isKept: boolean; readonly path: string },
  ): Promise<Visit> {
    const address = this.#options.addressOf(entrance)
    const begin = performance.now()
    return new Promise((resolve) => {
      let bytes = 0
      let isDone = false
      const done = (outcome: string, endpoint?: string) => {
        if (isDone) return
        isDone = true
        clearTimeout(timer)
        resolve({ host, entrance, begin, end: performance.now(), outcome, endpoint })
      }
      let hasAnswer = false
      const onResponse = (response: IncomingMessage) => {
        hasAnswer = true
        const { statusCode, headers } = response
        const endpoint = headers['x-endpoint']
        const code = headers['ngrok-error-code'] ?? ''
        const outcome = statusCode === 429 ? '429' : `${statusCode} ${code}`.trim()
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length
        })
        response.on('error', (error) => done(`cut: ${error.message}`))
        response.on('end', () => {
          const isWhole = path === '/' || statusCode !== 200 || bytes === DOWNLOAD_BYTES
          done(isWhole ? outcome : 'not whole', typeof endpoint === 'string' ? endpoint : undefined)
        })
      }
      const request = get(
        {
          ...{ host: address.host, port: address.port, path, headers: { host } },
          localAddress: `127.0.1.${1 + (lane % ADDRESSES)}`,
          agent: isKept ? this.#kept.get(entrance) : false,
        },
        onResponse,
      )
      const timer = setTimeout(() => request.destroy(new Error('silent')), PATIENCE_MS)
      request.on('error', (error: NodeJS.ErrnoException) => {
        const wasClosing = request.reusedSocket && error.code === 'ECONNRESET' && !hasAnswer
        if (!wasClosing) return done(error.code ?? error.message)
        // What every client does when a kept connection was being closed (RFC 9112 9.3.1).
        clearTimeout(timer)
        const again = this.#get(host, entrance, lane, { isKept: false, path })
        void again.then((visit) => resolve({ ...visit, begin }))
      })
    })
  }
}
