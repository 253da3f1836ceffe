import type { Clock } from '../../base/clock.ts'
import { NO_ERROR, type ResultError } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import type { ValueInput } from '../expression/value.ts'
import { OutboundError, type OutboundResponse, send } from './outbound.ts'
import type { Asker, PolicyReach } from './outbound-allow.ts'

/** Bytes of an answer that are read. */
const MAX_ANSWER = 262_144
const MAX_RETRIES = 3
const RETRY_MS = 100
/** Steps of a request: a policy must not cause much work at other policies. */
const ASK_STEPS = 1_000

/** Name under which retry conditions read the attempts. No action has this name. */
export const ATTEMPTS = '@attempts'

/** One request as an action prepared it. */
export interface Ask {
  readonly url: string
  readonly query: readonly (readonly [key: string, value: string])[]
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** Result for later rules: `actions.ngrok.http_request`. */
export type Answer = {
  readonly error: ResultError
  readonly attempts: readonly ValueInput[]
  readonly req: ValueInput
  readonly res?: ValueInput
}

export interface HttpAskerOptions {
  readonly clock: Clock
  readonly reach: PolicyReach
  /** For all attempts and redirects together. */
  readonly timeoutMs: number
  readonly maxRedirects: number
  /** Asked after each attempt; `last_attempt` can be read then. */
  readonly isRetried: (exchange: PolicyExchange) => boolean
}

interface Attempt {
  readonly response?: OutboundResponse
  readonly error: ResultError
  readonly timeMs: number
}

/** Sends requests of policies, with redirects and retries. */
export class HttpAsker {
  readonly #options: HttpAskerOptions

  constructor(options: HttpAskerOptions) {
    this.#options = options
  }

  /** Never rejects for external failures: `error` in the result reports them. */
  async ask(ask: Ask, exchange: PolicyExchange): Promise<Answer> {
    const { clock, timeoutMs, isRetried } = this.#options
    const signal = AbortSignal.timeout(timeoutMs)
    const req = requestView(ask)
    const { connection, account } = exchange
    const asker = { connection, account, depth: exchange.askDepth + 1 }
    const attempts: ValueInput[] = []
    for (let retry = 0; ; retry += 1) {
      account.spend(ASK_STEPS)
      const attempt = await this.#attempt(ask, asker, signal)
      attempts.push(attemptView(attempt))
      const { error, response } = attempt
      const res = responseView(response, attempt.timeMs)
      exchange.results.set(ATTEMPTS, {
        attempts: BigInt(attempts.length),
        last_attempt: { req, error, res },
      })
      if (retry === MAX_RETRIES || signal.aborted || !isRetried(exchange)) {
        return { error, attempts, req, ...(response && { res }) }
      }
      await clock.sleep(RETRY_MS * 2 ** retry, signal).catch(() => undefined)
    }
  }

  async #attempt(ask: Ask, asker: Asker, signal: AbortSignal): Promise<Attempt> {
    const { clock } = this.#options
    const startedAt = clock.monotonic()
    const timeMs = () => Math.round(clock.monotonic() - startedAt)
    try {
      return { response: await this.#follow(ask, asker, signal), error: NO_ERROR, timeMs: timeMs() }
    } catch (error) {
      if (!(error instanceof OutboundError)) throw error
      return { error: { code: error.code, message: error.message }, timeMs: timeMs() }
    }
  }

  async #follow(ask: Ask, asker: Asker, signal: AbortSignal): Promise<OutboundResponse> {
    let url = urlOf(ask)
    let { method, headers, body } = ask
    for (let redirects = 0; ; redirects += 1) {
      const request = { url, method, headers, body, maxBytes: MAX_ANSWER, signal, asker }
      const response = await send(request, this.#options.reach)
      const [location] = response.headers.get('location') ?? []
      const isRedirect = [301, 302, 303, 307, 308].includes(response.status)
      if (!isRedirect || location === undefined || this.#options.maxRedirects === 0) return response
      if (redirects === this.#options.maxRedirects) {
        throw new OutboundError('ERR_NGROK_3214', `There were more than ${redirects} redirects.`)
      }
      const next = URL.canParse(location, url.href) ? new URL(location, url) : undefined
      if (!next)
        throw new OutboundError('ERR_NGROK_3214', 'The redirect target is not a valid URL.')
      if (next.origin !== url.origin) headers = withoutCredentials(headers)
      // RFC 9110 15.4: only 307 and 308 keep method and body.
      if (response.status < 307 && method !== 'GET') {
        method = 'GET'
        body = ''
      }
      url = next
    }
  }
}

function urlOf({ url: text, query }: Ask): URL {
  if (!URL.canParse(text)) throw new EvaluationError(`${text} is not a valid URL`)
  const url = new URL(text)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new EvaluationError('only http and https URLs are supported')
  }
  for (const [key, value] of query) url.searchParams.append(key, value)
  return url
}

function withoutCredentials(headers: Readonly<Record<string, string>>): Record<string, string> {
  const { authorization: _authorization, cookie: _cookie, ...rest } = headers
  return rest
}

function requestView({ url, method, headers, body }: Ask): ValueInput {
  const header = new Map(Object.entries(headers).map(([name, value]) => [name, [value]]))
  return { method, url, header, body }
}

/** Without a response, all values are 0 or empty, so that conditions can be evaluated. */
function responseView(response: OutboundResponse | undefined, timeMs: number): ValueInput {
  return {
    status_code: BigInt(response?.status ?? 0),
    header: response?.headers ?? new Map(),
    body: response?.body.toString() ?? '',
    time_ms: BigInt(timeMs),
    resolved_ip: response?.remoteIp ?? '',
  }
}

function attemptView({ response, timeMs }: Attempt): ValueInput {
  return {
    resolved_ip: response?.remoteIp ?? '',
    response_header: response?.headers ?? new Map(),
    response_status_code: BigInt(response?.status ?? 0),
    response_time_ms: BigInt(timeMs),
  }
}
