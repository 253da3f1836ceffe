import { systemClock } from '../base/clock.ts'
import { createLogger } from '../base/logger.ts'
import { ACTIONS } from './actions/all-actions.ts'
import { HeaderList } from './exchange/header-list.ts'
import type { Outcome, Reply } from './exchange/outcome.ts'
import {
  PolicyExchange,
  type PolicyResponse,
  type PolicyTrace,
  type RuleStep,
} from './exchange/policy-exchange.ts'
import type { PolicySecrets } from './exchange/policy-secrets.ts'
import { plainHost } from './exchange/request-path.ts'
import { type Json, toJson } from './expression/value.ts'
import type { PolicyReach } from './outbound/outbound-allow.ts'
import { type CompiledPolicy, compilePolicy } from './policy.ts'

/** An imagined request, to explain a policy. */
export interface ExplainedRequest {
  readonly method: string
  readonly url: URL
  /** Path and query as they are sent; unless given as the URL has them, which resolves dot segments. */
  readonly target?: string
  /** Name and value in turn; `host` is added. */
  readonly headers: readonly string[]
  readonly body: string
  readonly clientIp: string
  /** Assumed response of the upstream. */
  readonly upstream: {
    readonly status: number
    /** Name and value in turn. */
    readonly headers: readonly string[]
  }
}

export interface ExplainedAction {
  readonly type: string
  readonly outcome: Outcome
  /** Result of the action under `actions.ngrok.…`; undefined without a result. */
  readonly result: Json | undefined
  /** `vars` of the phase, when the action changed them. */
  readonly vars: Json | undefined
}

export interface ExplainedRule extends RuleStep {
  readonly matches: boolean
  /** The first expression that is false. */
  readonly unmet: string | undefined
  readonly actions: readonly ExplainedAction[]
  /** Why the rule, or the action of it that comes next, failed: the policy fails closed then. */
  readonly failure: { readonly action: string | undefined; readonly message: string } | undefined
}

/** Explanation of one request. */
export interface Explanation {
  readonly rules: readonly ExplainedRule[]
  /** The request as the upstream would get it; undefined when it would not. */
  readonly forwarded: { readonly target: string; readonly headers: readonly string[] } | undefined
  /** Assumed response of the upstream. */
  readonly upstream: ExplainedRequest['upstream']
  /** How it ends; `continue` is the upstream's own answer. */
  readonly outcome: Outcome
  /** The head of the answer after the response phase. */
  readonly answer: { readonly status: number; readonly headers: readonly string[] } | undefined
}

interface ExplainOptions extends Pick<PolicyReach, 'mayDial' | 'mayRead'> {
  readonly repeat?: number
}

/** A device does not know the secrets of a gateway. */
const STAND_INS: PolicySecrets = {
  problemOf: () => undefined,
  read: ({ vault, name }) => `[secret ${vault}/${name}]`,
}

/**
 * Runs a policy `repeat` times for an imagined request, and explains each run with its own budget. Internal
 * endpoints that a request is passed to count as online. `http-request` reaches no internal endpoint, and
 * other servers only if `mayDial` allows. Keys are read from files that `mayRead` allows. By default nothing
 * is requested or read. Throws PolicyError.
 */
export async function explainPolicy(
  source: unknown,
  request: ExplainedRequest,
  { repeat = 1, mayDial, mayRead }: ExplainOptions = {},
): Promise<Explanation[]> {
  const policy = compilePolicy(source, {
    clock: systemClock,
    log: createLogger('silent'),
    hasInternal: () => true,
    mayDial,
    mayRead,
    isElsewhere: true,
    secrets: STAND_INS,
    // No TLS is ended here, so that its certificates are not read.
    certificateAuthority: (id) => `[certificate authority ${id}]`,
  })
  const explanations: Explanation[] = []
  for (let round = 0; round < repeat; round += 1) {
    explanations.push(await explainOnce(policy, request))
  }
  return explanations
}

async function explainOnce(
  policy: CompiledPolicy,
  request: ExplainedRequest,
): Promise<Explanation> {
  const trace = new RecordedTrace()
  const exchange = createExchange(request, trace)
  let outcome = await policy.onTcpConnect(exchange)
  if (outcome.kind === 'continue') outcome = await policy.onHttpRequest(exchange)
  const isForwarded = outcome.kind === 'continue'
  const { request: head } = exchange
  const forwarded =
    isForwarded && head ? { target: head.target, headers: [...head.headers.fields] } : undefined
  const runsResponsePhase = outcome.kind === 'respond' && outcome.runsResponsePhase
  const { status, headers } = request.upstream
  exchange.upstreamEnded(isForwarded ? status : NOT_AWAITED)
  if (isForwarded) exchange.response = { status, headers: new HeaderList(headers) }
  if (outcome.kind === 'respond') exchange.response = headOf(outcome.reply)
  if (isForwarded || runsResponsePhase) {
    const last = await policy.onHttpResponse(exchange)
    if (last.kind === 'respond') exchange.response = headOf(last.reply)
    if (last.kind !== 'continue') outcome = last
  }
  const { response } = exchange
  return {
    rules: trace.rules,
    forwarded,
    upstream: request.upstream,
    outcome,
    answer: response && { status: response.status, headers: response.headers.fields },
  }
}

const headOf = ({ status, headers }: Reply): PolicyResponse => ({
  status,
  headers: new HeaderList(headers),
})

function createExchange(request: ExplainedRequest, trace: RecordedTrace): PolicyExchange {
  const { method, url, headers, body, clientIp } = request
  const { target = `${url.pathname}${url.search}` } = request
  const scheme = url.protocol === 'http:' ? 'http' : 'https'
  const port = url.port === '' ? (scheme === 'http' ? 80 : 443) : Number(url.port)
  const now = systemClock.now()
  const exchange = new PolicyExchange({
    trace,
    // It is taken to come to an agreement.
    endTls: () => (scheme === 'https' ? 'ended' : 'otherwise'),
    connection: {
      clientIp,
      clientPort: 50_000,
      serverIp: '192.0.2.1',
      serverPort: port,
      startedAt: now,
      bytesIn: 0,
      bytesOut: 0,
      tls: scheme === 'https' ? TLS : undefined,
    },
    endpoint: { id: 'ep_explained', url: url.origin, host: url.hostname, port, protocol: scheme },
    request: {
      method,
      target,
      clientTarget: target,
      host: plainHost(url.host),
      scheme,
      httpVersion: '1.1',
      headers: new HeaderList(['host', url.host, ...headers]),
      receivedAt: now,
      bodyReceivedAt: now,
      readBody: (maxBytes) => {
        const bytes = Buffer.from(body)
        return Promise.resolve(bytes.length > maxBytes ? undefined : bytes)
      },
    },
  })
  trace.exchange = exchange
  return exchange
}

/** Status in the log when the gateway did not wait for the upstream. */
const NOT_AWAITED = 499

const TLS = { version: 'TLSv1.3', cipherSuite: 'TLS_AES_256_GCM_SHA384', serverName: '', alpn: '' }

type Recorded = { -readonly [K in keyof ExplainedRule]: ExplainedRule[K] } & {
  actions: ExplainedAction[]
}

/** Records the steps of rules and actions. */
class RecordedTrace implements PolicyTrace {
  readonly rules: Recorded[] = []
  exchange: PolicyExchange | undefined
  #vars = '{}'

  onRule(step: RuleStep & { readonly unmet: string | undefined }): void {
    this.#add(step)
  }

  onAction({ type, outcome }: { readonly type: string; readonly outcome: Outcome }): void {
    const result = this.exchange?.results.get(ACTIONS.get(type)?.namespace ?? '')
    const vars = toJson(this.exchange?.vars ?? {})
    const isChanged = JSON.stringify(vars) !== this.#vars
    this.#vars = JSON.stringify(vars)
    this.rules.at(-1)?.actions.push({
      type,
      outcome,
      result: result && toJson(result),
      vars: isChanged ? vars : undefined,
    })
  }

  onFailure(step: Parameters<PolicyTrace['onFailure']>[0]): void {
    const { action, message } = step
    const last = this.rules.at(-1)
    const rule = action !== undefined && last ? last : this.#add({ ...step, unmet: undefined })
    if (action === undefined) rule.matches = false
    rule.failure = { action, message }
  }

  #add({ phase, index, name, unmet }: RuleStep & { readonly unmet: string | undefined }): Recorded {
    // Variables live for a phase.
    if (phase !== this.rules.at(-1)?.phase) this.#vars = '{}'
    const matches = unmet === undefined
    const rule = { phase, index, name, matches, unmet, actions: [], failure: undefined }
    this.rules.push(rule)
    return rule
  }
}
