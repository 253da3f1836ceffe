import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { abortedAfter } from '../../base/deadline.ts'
import type { Secret } from '../../base/secret.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { plainLine } from '../local/terminal-text.ts'

/** As many as a gateway takes in one request. */
const MOST = 100
/** A service that takes them one by one is not to be flooded. */
const ALONE_AT_ONCE = 8

export interface ManagementAnswer {
  readonly status: number
  readonly text: string
}

const Answers = z.object({
  responses: z.array(z.object({ status: z.int(), body: z.unknown() })),
})

interface Waiting {
  readonly path: string
  readonly body: object
  readonly resolve: (answer: ManagementAnswer | Promise<ManagementAnswer>) => void
  readonly reject: (error: unknown) => void
}

/**
 * Combines creations at the same time into one request, `POST /batch`. Services without it, such as the
 * hosted service, get single requests.
 */
export class CreateBatches {
  readonly #post: (path: string, body: object) => Promise<ManagementAnswer>
  #waiting: Waiting[] = []
  #isServed = true
  readonly #alone = new Semaphore(ALONE_AT_ONCE)

  constructor(post: (path: string, body: object) => Promise<ManagementAnswer>) {
    this.#post = post
  }

  ask(path: string, body: object): Promise<ManagementAnswer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ path, body, resolve, reject })
      if (this.#waiting.length === 1) setImmediate(() => this.#flush())
    })
  }

  #flush(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (let at = 0; at < waiting.length; at += MOST) {
      const some = waiting.slice(at, at + MOST)
      this.#send(some).catch((error: unknown) => {
        for (const { reject } of some) reject(error)
      })
    }
  }

  async #send(some: readonly Waiting[]): Promise<void> {
    if (!this.#isServed || some.length === 1) return this.#sendAlone(some)
    const requests = some.map(({ path, body }) => ({ path, body }))
    const { status, text } = await this.#post('batch', { requests })
    if (status === 404 || status === 405) {
      this.#isServed = false
      return this.#sendAlone(some)
    }
    const parsed = status === 200 ? Answers.safeParse(tryJson(text)).data : undefined
    for (const [at, { resolve }] of some.entries()) {
      const answer = parsed?.responses[at]
      // A refusal of the batch is the response for each item.
      if (!answer) resolve({ status, text })
      else resolve({ status: answer.status, text: JSON.stringify(answer.body) })
    }
  }

  #sendAlone(some: readonly Waiting[]): void {
    for (const { path, body, resolve } of some) {
      resolve(this.#alone.run(() => this.#post(path, body)))
    }
  }
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** OpenSSL's and Node's words for a certificate that was not accepted. */
const CERTIFICATE =
  /^(CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|ERR_TLS_CERT|HOSTNAME_MISMATCH|INVALID_CA)/
const NO_TLS = /^(EPROTO|ERR_SSL_)/
const NO_HTTP = /^(HPE_|UND_ERR_SOCKET|ECONNRESET)/

/** One sentence with the reason why `fetch` could not reach `origin`, and the remedy. */
function connectionSentence(
  error: unknown,
  origin: string,
  {
    timeoutMs,
    startRemedy,
  }: { timeoutMs: number; startRemedy: (() => string | undefined) | undefined },
): string {
  const code = codeOf(error)
  if (code === 'TimeoutError' || code === 'UND_ERR_CONNECT_TIMEOUT' || code === 'ETIMEDOUT') {
    return `${origin} did not answer within ${timeoutMs / 1_000} s. Check --api-url and the network.`
  }
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return `${origin} cannot be resolved (${code}). Check --api-url and the DNS of this machine.`
  }
  if (code === 'ECONNREFUSED') {
    return `${origin} refuses connections. ${startRemedy?.() ?? 'Start the gateway, or check --api-url.'}`
  }
  if (CERTIFICATE.test(code)) {
    return (
      `The certificate of ${origin} is not trusted (${code}). Check --api-url and the clock, ` +
      'or set NODE_EXTRA_CA_CERTS to its CA file.'
    )
  }
  if (NO_TLS.test(code)) return `${origin} does not use TLS (${code}). Use http:// in --api-url.`
  if (NO_HTTP.test(code)) {
    return `${origin} closed the connection without an HTTP response (${code}). Check --api-url: http or https.`
  }
  const { message } = rootOf(error)
  return `${origin} is unreachable (${code || message}). Check --api-url and the network.`
}

function codeOf(error: unknown): string {
  if (error instanceof Error && error.name === 'TimeoutError') return error.name
  const { code } = rootOf(error) as NodeJS.ErrnoException
  return code ?? ''
}

/** `fetch` wraps the cause in a TypeError without details. */
function rootOf(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error))
  return error.cause instanceof Error ? rootOf(error.cause) : error
}

const TIMEOUT_MS = 15_000
/** A page of a hundred credentials with every rule and text at its limit stays below it. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024
const PAGE_LIMIT = 100
/** More than any account has; an API that repeats itself must end somewhere. */
const MAX_ITEMS = 200_000
/** How often one request is sent again because the API asks to go slower. */
const MAX_WAITS = 8
/** When the API does not say how long, and the longest that is believed. */
const DEFAULT_WAIT_S = 5
const MAX_WAIT_S = 120
const MAX_SHOWN = 300

const Refusal = z.object({ error_code: z.string().optional(), msg: z.string() })

/** Remedies in addition to the API's message, by code. */
const REMEDIES: Readonly<Record<string, string>> = {
  ERR_NGROK_413: 'Choose another --domain.',
  ERR_NGROK_414: 'Choose another --domain.',
  ERR_NGROK_4112: 'Choose another name for the device.',
}

/** Nothing is served at the path, or there is no such thing there. */
export class NotServedError extends StartError {}

export interface ManagementClientOptions {
  /** `http://127.0.0.1:8070`, `https://api.ngrok.com`. */
  readonly baseUrl: URL
  readonly apiKey: Secret
  readonly clock: Clock
  /** How to start the installed gateway. Undefined: none is installed, or it runs. */
  readonly startRemedy?: () => string | undefined
  /** Ends every request. */
  readonly stop: AbortSignal
  readonly timeoutMs?: number
}

/** Client of the management API. Every failure is a StartError with a remedy. */
export class ManagementClient {
  readonly origin: string
  readonly #options: ManagementClientOptions
  /** Nothing is sent before, in `clock.monotonic()`: the API asked all of us to wait. */
  #resumeAt = 0

  readonly #creates = new CreateBatches((path, body) => this.#ask('POST', path, body))

  constructor(options: ManagementClientOptions) {
    this.#options = options
    this.origin = options.baseUrl.origin
  }

  /** All items of a resource. Items may have more fields than `item`. */
  async list<Item extends { readonly id: string }>(
    path: string,
    item: z.ZodType<Item>,
    { collection = path }: { readonly collection?: string } = {},
  ): Promise<Item[]> {
    const Page = z.object({ next_page_uri: z.string().nullable(), [collection]: z.array(item) })
    const items: Item[] = []
    while (items.length < MAX_ITEMS) {
      const last = items.at(-1)
      // Built here rather than followed: the key goes to no address that an answer names.
      const before = last ? `&before_id=${last.id}` : ''
      const page = await this.#send('GET', `${path}?limit=${PAGE_LIMIT}${before}`, Page)
      const found = page[collection] as Item[]
      items.push(...found)
      if (page.next_page_uri === null || found.length === 0) return items
    }
    throw new StartError(`${this.origin} has more than ${MAX_ITEMS} ${path}.`)
  }

  /** The same for a resource that some services lack; undefined if it does not exist. */
  async listIfServed<Item extends { readonly id: string }>(
    path: string,
    item: z.ZodType<Item>,
  ): Promise<Item[] | undefined> {
    try {
      return await this.list(path, item)
    } catch (error) {
      if (error instanceof NotServedError) return undefined
      throw error
    }
  }

  get<T>(path: string, schema: z.ZodType<T>): Promise<T> {
    return this.#send('GET', path, schema)
  }

  update<T>(path: string, body: object, schema: z.ZodType<T>): Promise<T> {
    return this.#send('PATCH', path, schema, body)
  }

  /** Combines creations at the same time into one request, if the service supports that. */
  async create<T>(path: string, body: object, schema: z.ZodType<T>): Promise<T> {
    return this.#read(await this.#creates.ask(path, body), schema)
  }

  /** `POST /<path>` of something that is there. */
  act<T>(path: string, schema: z.ZodType<T>): Promise<T> {
    return this.#send('POST', path, schema)
  }

  async delete(path: string): Promise<void> {
    await this.#send('DELETE', path, z.undefined())
  }

  async #send<T>(method: string, path: string, schema: z.ZodType<T>, body?: object): Promise<T> {
    return this.#read(await this.#ask(method, path, body), schema)
  }

  #read<T>({ status, text }: ManagementAnswer, schema: z.ZodType<T>): T {
    if (status === 404) throw new NotServedError(this.#refusal(404, text).message)
    if (status < 200 || status >= 300) throw this.#refusal(status, text)
    return this.#parse(schema, text)
  }

  async #ask(method: string, path: string, body?: object): Promise<ManagementAnswer> {
    for (let waits = 0; ; waits += 1) {
      await this.#mayGo()
      const { response, text } = await this.#exchange(method, path, body)
      if (response.status === 429 && waits < MAX_WAITS) this.#wait(response)
      else return { status: response.status, text }
    }
  }

  async #exchange(method: string, path: string, body: object | undefined) {
    const { baseUrl, apiKey, stop, timeoutMs = TIMEOUT_MS, startRemedy } = this.#options
    const url = `${baseUrl.href.replace(/\/$/, '')}/${path}`
    const request: RequestInit = {
      method,
      headers: {
        authorization: `Bearer ${apiKey.reveal()}`,
        'svc-version': '2',
        'ngrok-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
      redirect: 'error',
    }
    try {
      return await abortedAfter(timeoutMs, stop, async (signal) => {
        const response = await fetch(url, { ...request, signal })
        return { response, text: await readText(response) }
      })
    } catch (error) {
      if (stop.aborted) throw new StartError('Stopped before the end.')
      if (error instanceof StartError) throw error
      throw new StartError(connectionSentence(error, this.origin, { timeoutMs, startRemedy }), {
        cause: error,
      })
    }
  }

  async #mayGo(): Promise<void> {
    const { clock, stop } = this.#options
    for (let ms = this.#resumeAt - clock.monotonic(); ms > 0; ) {
      await clock.sleep(ms, stop).catch(() => {})
      if (stop.aborted) throw new StartError('Stopped before the end.')
      ms = this.#resumeAt - clock.monotonic()
    }
  }

  #wait(response: Response): void {
    const asked = Number(response.headers.get('retry-after') ?? Number.NaN)
    const seconds = asked >= 0 ? Math.min(asked, MAX_WAIT_S) : DEFAULT_WAIT_S
    const resumeAt = this.#options.clock.monotonic() + seconds * 1_000
    this.#resumeAt = Math.max(this.#resumeAt, resumeAt)
  }

  #refusal(status: number, text: string): StartError {
    const refusal = Refusal.safeParse(tryJson(text)).data
    if (!refusal) return this.#notThisApi(`status ${status} without a reason`)
    const { error_code: code, msg } = refusal
    // One of the hosted service's refusals repeats the key that was sent.
    const shown = (it: string) =>
      plainLine(this.#options.apiKey.scrub(it.replaceAll(/\s+/g, ' ').trim()).slice(0, MAX_SHOWN))
    const said = shown(msg)
    const reason = code && !said.includes(code) ? `${said} (${shown(code)})` : said
    if (status === 401 || status === 403) {
      return new StartError(`${this.origin} rejects the API key: ${reason}`)
    }
    const remedy = REMEDIES[code ?? '']
    return new StartError(
      `${this.origin} refused the request: ${reason}${remedy ? ` ${remedy}` : ''}`,
    )
  }

  #parse<T>(schema: z.ZodType<T>, text: string): T {
    const parsed = schema.safeParse(text === '' ? undefined : tryJson(text))
    if (parsed.success) return parsed.data
    const [issue] = parsed.error.issues
    throw this.#notThisApi(`${issue?.path.join('.') || 'the response'}: ${issue?.message}`)
  }

  #notThisApi(what: string): StartError {
    return new StartError(`${this.origin} is not a management API (${what}). Check --api-url.`)
  }
}

async function readText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of response.body ?? []) {
    sizeBytes += chunk.length
    if (sizeBytes > MAX_ANSWER_BYTES) {
      throw new StartError(`A response is larger than ${MAX_ANSWER_BYTES} bytes. Check --api-url.`)
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}
