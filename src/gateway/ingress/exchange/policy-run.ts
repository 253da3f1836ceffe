import { HeaderList } from '../../../policy/exchange/header-list.ts'
import { withoutLoginCookies } from '../../../policy/exchange/login-cookie.ts'
import type { EndTls, MaybePromise, Outcome } from '../../../policy/exchange/outcome.ts'
import {
  type BodyTransform,
  type Connection,
  PolicyExchange,
  type PolicyRequest,
} from '../../../policy/exchange/policy-exchange.ts'
import type { Account } from '../../../policy/expression/account.ts'
import { type Endpoint, endpointFacts } from '../../endpoints/endpoint.ts'
import { isPooled } from '../../endpoints/endpoint-pool.ts'
import type { Client } from '../common/client.ts'
import type { HandedOn } from '../common/ingress-listener.ts'
import { isKept, keepFormatted } from '../syntax/message-fields.ts'
import type { RequestHead } from '../syntax/request-head.ts'

/** How a connection has come to an endpoint. */
interface ConnectOptions {
  readonly endTls?: EndTls | undefined
  /** How many endpoints have handed it on. */
  readonly hops?: number
  /** Budget of all policies together. */
  readonly account?: Account
}

/** Decision of `on_tcp_connect` about a connection, before any request. */
export function connectVerdict(
  endpoint: Endpoint,
  connection: Connection,
  options: ConnectOptions = {},
): MaybePromise<Outcome> {
  const { policy, traffic } = endpoint
  if (!policy.hasConnectRules) return { kind: 'continue' }
  const exchange = new PolicyExchange({
    ...options,
    connection,
    endpoint: endpointFacts(endpoint),
  })
  const outcome = policy.onTcpConnect(exchange)
  const count = () => {
    if (exchange.account.isOverspent) traffic.overBudget += 1
  }
  if (outcome instanceof Promise) outcome.then(count, count)
  else count()
  return outcome
}

export interface PolicyRunOptions {
  readonly endpoint: Endpoint
  readonly client: Client
  readonly head: RequestHead
  readonly target: string
  /** As they are about to go to the device. */
  readonly fields: readonly string[]
  /** Milliseconds since the epoch. */
  readonly receivedAt: number
  /** The same; undefined while the body has not come. */
  readonly bodyReceivedAt: () => number | undefined
  readonly readBody: (maxBytes: number) => Promise<Buffer | undefined>
  readonly askDepth: () => number
  /** Budget of the request whose policy asks. A visitor's own request gets a new budget. */
  readonly account: Account | undefined
  /** The policy of the endpoint that handed the request on; it sees the response later. */
  readonly outer: PolicyRun | undefined
  /** Data from other nodes that passed the request on. */
  readonly handed?: Pick<HandedOn, 'hops' | 'withholdsLogin'> | undefined
}

/** The head of a request as its policy sees and changes it. */
class JudgedRequest implements PolicyRequest {
  readonly method: string
  target: string
  readonly clientTarget: string
  readonly host: string
  readonly scheme: 'http' | 'https'
  readonly httpVersion: PolicyRequest['httpVersion']
  readonly headers: HeaderList
  readonly receivedAt: number
  readonly readBody: PolicyRequest['readBody']
  readonly #bodyReceivedAt: () => number | undefined

  constructor(options: PolicyRunOptions) {
    const { head, client } = options
    this.method = head.method
    this.target = options.target
    this.clientTarget = head.target
    this.host = head.hostname
    this.scheme = client.listener.scheme
    this.httpVersion = head.visitorVersion ?? head.version
    this.headers = headerList(options.fields)
    this.receivedAt = options.receivedAt
    this.readBody = options.readBody
    this.#bodyReceivedAt = options.bodyReceivedAt
  }

  get bodyReceivedAt(): number | undefined {
    return this.#bodyReceivedAt()
  }
}

/** In a pool, another member may be where visitors log in. */
const withholdsLogin = (endpoint: Endpoint) => endpoint.policy.hasLogin || isPooled(endpoint)

/** The fields of a request that no policy has seen, as the device may see them. */
export function unjudgedFields(
  endpoint: Endpoint,
  fields: readonly string[],
  handed?: Pick<HandedOn, 'withholdsLogin'>,
): readonly string[] {
  const isWithheld = handed?.withholdsLogin || withholdsLogin(endpoint)
  return isWithheld ? withoutLoginCookies(fields) : fields
}

/** Fields of a head for a policy, which copies them before it changes them. */
const headerList = (fields: readonly string[]) => new HeaderList(fields, isKept(fields))

/** Fields of a head after a policy. The lines of heads that recur are kept. */
function fieldsOf({ fields, recurs }: HeaderList): readonly string[] {
  if (recurs) keepFormatted(fields)
  return fields
}

/** The policy of an endpoint at work on one exchange. */
export class PolicyRun {
  readonly #endpoint: Endpoint
  readonly #client: Client
  readonly #request: PolicyRequest
  readonly #exchange: PolicyExchange
  readonly #isLoginWithheld: boolean
  /** See `PolicyRunOptions`. */
  readonly outer: PolicyRun | undefined
  /** How many endpoints have handed the request on. */
  readonly hops: number

  constructor(options: PolicyRunOptions) {
    const { endpoint, client, outer, handed } = options
    const account = outer ? outer.#exchange.account : options.account
    this.outer = outer
    this.hops = outer ? outer.hops + 1 : (handed?.hops ?? 0)
    this.#isLoginWithheld = handed?.withholdsLogin === true
    this.#endpoint = endpoint
    this.#client = client
    this.#request = new JudgedRequest(options)
    this.#exchange = new PolicyExchange({
      connection: client.facts,
      endpoint: endpointFacts(endpoint),
      request: this.#request,
      hops: this.hops,
      askDepth: options.askDepth,
      account,
      readSecrets: outer ? outer.#exchange.readSecrets : undefined,
    })
  }

  /** Milliseconds since the epoch at which the head had come. */
  get receivedAt(): number {
    return this.#request.receivedAt
  }

  /** Target of the request, as the policy left it. */
  get target(): string {
    return this.#request.target
  }

  /** Request fields after the policy's changes. */
  get fields(): readonly string[] {
    return fieldsOf(this.#request.headers)
  }

  /** The same for the device. */
  get deviceFields(): readonly string[] {
    return this.withholdsLogin ? withoutLoginCookies(this.fields) : this.fields
  }

  /** Additional response fields, name and value in turn. */
  get addedFields(): readonly string[] {
    const own = this.#exchange.addedFields
    return this.outer ? [...this.outer.addedFields, ...own] : own
  }

  /** Changes of the request body. */
  get requestTransforms(): readonly BodyTransform[] {
    const own = this.#exchange.requestTransforms
    return this.outer ? [...this.outer.requestTransforms, ...own] : own
  }

  /** Changes of the response body. */
  get responseTransforms(): readonly BodyTransform[] {
    const own = this.#exchange.responseTransforms
    return this.outer ? [...own, ...this.outer.responseTransforms] : own
  }

  /** Status and fields of the response, as the policies left them. */
  get response(): { readonly status: number; readonly fields: readonly string[] } {
    if (this.outer) return this.outer.response
    const { status = 0, headers } = this.#exchange.response ?? {}
    return { status, fields: headers ? fieldsOf(headers) : [] }
  }

  get hasResponseRules(): boolean {
    return this.#endpoint.policy.hasResponseRules || this.outer?.hasResponseRules === true
  }

  /** Runs the connect phase, once per connection, then the request phase. */
  judgeRequest(): MaybePromise<Outcome> {
    const { policy } = this.#endpoint
    if (!policy.hasConnectRules || this.#client.isAdmitted(this.#endpoint)) return this.#judgeHead()
    const { endpoint, account } = this.#exchange
    const { facts: connection } = this.#client
    // TLS already ended, or there was no TLS. The terms are the same, or it is too late for others.
    const endTls: EndTls = ({ id }) => (connection.tls?.terms === id ? 'ended' : 'otherwise')
    const connected = new PolicyExchange({ connection, endpoint, account, endTls })
    const outcome = this.#counted(() => policy.onTcpConnect(connected))
    return outcome instanceof Promise
      ? outcome.then((settled) => this.#afterConnect(settled))
      : this.#afterConnect(outcome)
  }

  /** Runs the response phase on a response of the device or of the policy. */
  judgeResponse(status: number, fields: readonly string[]): MaybePromise<Outcome> {
    const response = { status, headers: headerList(fields) }
    this.#exchange.response = response
    const outcome = this.#counted(() => this.#endpoint.policy.onHttpResponse(this.#exchange))
    const { outer } = this
    if (!outer) return outcome
    const goOn = (own: Outcome) =>
      own.kind === 'continue' ? outer.judgeResponse(response.status, response.headers.fields) : own
    return outcome instanceof Promise ? outcome.then(goOn) : goOn(outcome)
  }

  /** How the device did; undefined when it gave no valid answer. Only the first call counts. */
  upstreamEnded(status: number | undefined): void {
    this.#exchange.upstreamEnded(status)
    this.outer?.upstreamEnded(status)
  }

  /** The device was lost, and another endpoint serves the request. */
  endUpstream(): void {
    this.#exchange.upstreamEnded(undefined)
  }

  /** True when the cookies of a log-in are the gateway's own. */
  get withholdsLogin(): boolean {
    return (
      this.#isLoginWithheld || withholdsLogin(this.#endpoint) || this.outer?.withholdsLogin === true
    )
  }

  /** Reports to the endpoint's owner that the policy exhausted its budget. */
  #counted(run: () => MaybePromise<Outcome>): MaybePromise<Outcome> {
    const { account } = this.#exchange
    if (account.isOverspent) return run()
    const outcome = run()
    if (outcome instanceof Promise) {
      const count = () => this.#count(account)
      outcome.then(count, count)
    } else {
      this.#count(account)
    }
    return outcome
  }

  #count(account: Account): void {
    if (account.isOverspent) this.#endpoint.traffic.overBudget += 1
  }

  #afterConnect(outcome: Outcome): MaybePromise<Outcome> {
    if (outcome.kind !== 'continue') return outcome
    this.#client.admit(this.#endpoint)
    return this.#judgeHead()
  }

  #judgeHead(): MaybePromise<Outcome> {
    return this.#counted(() => this.#endpoint.policy.onHttpRequest(this.#exchange))
  }
}
