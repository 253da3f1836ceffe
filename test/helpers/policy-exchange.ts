import type { Clock } from '../../src/base/clock.ts'
import { ACTIONS } from '../../src/policy/actions/all-actions.ts'
import { HeaderList } from '../../src/policy/exchange/header-list.ts'
import type { Outcome } from '../../src/policy/exchange/outcome.ts'
import {
  type ActionResult,
  type Connection,
  PolicyExchange,
  type PolicyTrace,
} from '../../src/policy/exchange/policy-exchange.ts'
import { plainHost } from '../../src/policy/exchange/request-path.ts'
import { toJson } from '../../src/policy/expression/value.ts'
import type { Phase } from '../../src/policy/phase.ts'
import { type CompiledPolicy, compilePolicy, type PolicyOptions } from '../../src/policy/policy.ts'
import { PolicyScope, policyLanguage } from '../../src/policy/policy-language.ts'
import { captureLog } from './captured-log.ts'
import { ManualClock } from './manual-clock.ts'

export interface ExchangeParts {
  readonly method?: string
  readonly url?: string
  /** Host field and target as a visitor writes them; unless given those of the URL. */
  readonly host?: string
  readonly target?: string
  /** Name and value in turn; `Host` is added. */
  readonly headers?: readonly string[]
  readonly body?: string | Buffer
  /** Milliseconds since the epoch; unless given the body is still coming. */
  readonly bodyReceivedAt?: number
  readonly ip?: string
  readonly connection?: Partial<Connection>
  readonly status?: number
  readonly responseHeaders?: readonly string[]
  readonly hops?: number
  readonly askDepth?: number
  readonly trace?: PolicyTrace
}

/** An exchange as the ingress would make it; with `status` the response has come. */
export function createExchange(parts: ExchangeParts = {}): PolicyExchange {
  const url = new URL(parts.url ?? 'https://device.example.com/')
  const scheme = url.protocol === 'http:' ? 'http' : 'https'
  const port = Number(url.port || (scheme === 'http' ? 80 : 443))
  const body = Buffer.from(parts.body ?? '')
  const { host = url.host, target = `${url.pathname}${url.search}` } = parts
  const exchange = new PolicyExchange({
    connection: {
      clientIp: parts.ip ?? '203.0.113.9',
      clientPort: 51_234,
      serverIp: '192.0.2.1',
      serverPort: port,
      startedAt: Date.UTC(2030, 0, 1),
      bytesIn: 120,
      bytesOut: 340,
      ...parts.connection,
    },
    endpoint: {
      id: 'ep_1',
      url: url.origin,
      host: url.hostname,
      port,
      protocol: scheme,
    },
    request: {
      method: parts.method ?? 'GET',
      target,
      clientTarget: target,
      host: plainHost(host),
      scheme,
      httpVersion: '1.1',
      headers: new HeaderList(['Host', host, ...(parts.headers ?? [])]),
      receivedAt: Date.UTC(2030, 0, 1, 0, 0, 1),
      bodyReceivedAt: parts.bodyReceivedAt,
      readBody: (maxBytes) => Promise.resolve(body.length > maxBytes ? undefined : body),
    },
    hops: parts.hops ?? 0,
    askDepth: () => parts.askDepth ?? 0,
    trace: parts.trace,
  })
  if (parts.status !== undefined) {
    const headers = new HeaderList([...(parts.responseHeaders ?? [])])
    exchange.response = { status: parts.status, headers }
  }
  return exchange
}

/** A policy on a clock of its own. */
export class PolicyBench {
  readonly clock: ManualClock
  readonly captured = captureLog()
  readonly policy: CompiledPolicy

  constructor(source: unknown, options: Partial<PolicyOptions> & { clock?: ManualClock } = {}) {
    this.clock = options.clock ?? new ManualClock()
    this.policy = compilePolicy(source, {
      log: this.captured.log,
      ...options,
      clock: this.clock satisfies Clock,
    })
  }

  async request(
    parts: ExchangeParts = {},
  ): Promise<{ outcome: Outcome; exchange: PolicyExchange }> {
    const exchange = createExchange(parts)
    return { outcome: await this.policy.onHttpRequest(exchange), exchange }
  }

  async response(
    parts: ExchangeParts = {},
  ): Promise<{ outcome: Outcome; exchange: PolicyExchange }> {
    const exchange = createExchange({ status: 200, ...parts })
    return { outcome: await this.policy.onHttpResponse(exchange), exchange }
  }

  async connect(parts: ExchangeParts = {}): Promise<Outcome> {
    return this.policy.onTcpConnect(createExchange(parts))
  }
}

/** A document with one action in the request phase. */
export function onRequest(type: string, config?: unknown, expressions: readonly string[] = []) {
  return { on_http_request: [{ expressions, actions: [{ type, ...(config ? { config } : {}) }] }] }
}

/** A document with one action in the response phase. */
export function onResponse(type: string, config?: unknown) {
  return { on_http_response: [{ actions: [{ type, ...(config ? { config } : {}) }] }] }
}

/** The reply of an outcome that has one. */
export function replyOf(outcome: Outcome) {
  if (outcome.kind !== 'respond') throw new Error(`the outcome is ${outcome.kind}`)
  const { reply } = outcome
  return { ...reply, headers: new HeaderList([...reply.headers]) }
}

export interface EvaluationParts extends ExchangeParts {
  readonly phase?: Phase
  readonly vars?: Readonly<Record<string, unknown>>
  readonly results?: Readonly<Record<string, ActionResult>>
}

const CLOCK = new ManualClock()

/** Compiles an expression as a policy would; throws ExpressionProblem. */
export function compileExpression(source: string, phase: Phase = 'on_http_request', vars = ['v']) {
  const scope = new PolicyScope()
  for (const action of ACTIONS.values()) scope.addAction(action)
  for (const name of vars) scope.addVariable(name)
  return policyLanguage(CLOCK).compile(source, scope.in(phase))
}

/** What an expression comes to, as JSON; throws ExpressionProblem or EvaluationError. */
export function evaluate(source: string, parts: EvaluationParts = {}): unknown {
  const { vars = {}, results = {}, phase = 'on_http_request' } = parts
  const exchange = createExchange(parts)
  for (const [name, value] of Object.entries(vars)) exchange.vars.set(name, value)
  for (const [name, result] of Object.entries(results)) exchange.results.set(name, result)
  return toJson(compileExpression(source, phase, Object.keys(vars)).evaluate(exchange))
}
