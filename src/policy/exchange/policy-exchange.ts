import type { X509Certificate } from 'node:crypto'
import type { Transform } from 'node:stream'
import { ReadSecrets } from '../../base/read-secrets.ts'
import { Account } from '../expression/account.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import type { Phase } from '../phase.ts'
import { AddressLookUps, type AddressTables } from './address-tables.ts'
import type { HeaderList } from './header-list.ts'
import type { EndTls, Outcome } from './outcome.ts'
import { ParsedFields } from './parsed-fields.ts'
import type { PolicySecrets, SecretName } from './policy-secrets.ts'

/** The TLS session of a connection that the gateway terminates. */
export interface TlsSession {
  /** As Node names it: `TLSv1.3`. */
  readonly version: string
  readonly cipherSuite: string
  /** Empty when the client named no server. */
  readonly serverName: string
  /** Empty when no protocol was negotiated. */
  readonly alpn: string
  readonly serverCertificate?: SessionCertificate | undefined
  readonly clientCertificate?: SessionCertificate | undefined
  /** Id of the `TlsTerms` with which a policy ended TLS. Undefined: those of the gateway. */
  readonly terms?: string | undefined
}

/** A certificate of a TLS session. */
export interface SessionCertificate {
  readonly x509: X509Certificate
  /** `SHA256-RSA`, `ECDSA-SHA384`, `Ed25519`, …; the OID of one without a name. */
  readonly signatureAlgorithm: string | undefined
  /** As they stand in the certificate. Like the algorithm undefined when it cannot be decoded. */
  readonly extensions: readonly CertificateExtension[] | undefined
}

/** An extension of a certificate (RFC 5280 4.2): its OID, and the DER inside its octet string. */
export type CertificateExtension = {
  readonly id: string
  readonly critical: boolean
  readonly value: Uint8Array
}

/** A client's connection. Addresses are those of the transport, never of a header. */
export interface Connection {
  /** IPv4 or IPv6 text without brackets; an IPv4-mapped address is given as IPv4. */
  readonly clientIp: string
  readonly clientPort: number
  readonly serverIp: string
  readonly serverPort: number
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  readonly tls?: TlsSession | undefined
  /** The name in the hello of TLS that has not ended here, or not yet. */
  readonly serverName?: string | undefined
  /** Bytes received from and sent to the client so far. */
  readonly bytesIn: number
  readonly bytesOut: number
  /** Tables of addresses; unset: nothing is known. */
  readonly tables?: AddressTables | undefined
}

/** Facts about the endpoint that its policy can read. */
export interface EndpointFacts {
  readonly id: string
  readonly url: string
  readonly host: string
  readonly port: number
  readonly protocol: 'http' | 'https' | 'tcp' | 'tls'
}

/** `2.0` as Go's net/http writes it. */
export type HttpVersion = '1.0' | '1.1' | '2.0'

/** The head of a request on its way to the upstream; actions change `target` and `headers`. */
export interface PolicyRequest {
  readonly method: string
  /** Origin form as it goes upstream: `/path?query`. */
  target: string
  /** The target as the client sent it, without rewrites. */
  readonly clientTarget: string
  /** Value of `Host` or `:authority` in the client's request, in the form of `plainHost`. */
  readonly host: string
  readonly scheme: 'http' | 'https'
  readonly httpVersion: HttpVersion
  readonly headers: HeaderList
  /** Milliseconds since the epoch at which the head was complete. */
  readonly receivedAt: number
  /** Time when the body was complete, or the head if there is no body. Undefined while it is incomplete. */
  readonly bodyReceivedAt: number | undefined
  /**
   * The whole body, up to `maxBytes`; undefined if it is longer. The ingress keeps the data and forwards it
   * afterwards. Only actions on bodies call it.
   */
  readBody(maxBytes: number): Promise<Buffer | undefined>
}

/** The head of a response on its way to the client; actions change `status` and `headers`. */
export interface PolicyResponse {
  status: number
  readonly headers: HeaderList
}

/**
 * A change of a body by an action. The ingress pipes the body through `create()`, and derives the framing
 * from the output: the action has already removed `content-length`.
 */
export interface BodyTransform {
  /** True when nothing comes out before the body is over, unless it is long: its length can be known. */
  readonly isWhole: boolean
  create(): Transform
}

/** A rule that an exchange has come to. */
export interface RuleStep {
  readonly phase: Phase
  /** Counted from 0 in its phase. */
  readonly index: number
  readonly name: string | undefined
}

/** Receives the steps of rules and actions, for explanations. */
export interface PolicyTrace {
  /** `unmet` is the source of the first expression that is false; without one the rule matches. */
  onRule(step: RuleStep & { readonly unmet: string | undefined }): void
  onAction(step: { readonly type: string; readonly outcome: Outcome }): void
  /** `action`: type of the failed action. Undefined: the rule itself could not be evaluated. */
  onFailure(
    step: RuleStep & { readonly action: string | undefined; readonly message: string },
  ): void
}

export interface PolicyExchangeOptions {
  readonly connection: Connection
  readonly endpoint: EndpointFacts
  /** Absent while a connection is judged, before any request. */
  readonly request?: PolicyRequest
  /** How many forward-internal actions led here. */
  readonly hops?: number
  /** How many http-request actions led here, of this policy and of others; asked when one runs. */
  readonly askDepth?: () => number
  readonly trace?: PolicyTrace | undefined
  /** Undefined if TLS cannot be ended here. */
  readonly endTls?: EndTls | undefined
  /** That of the request, where an exchange is not all there is of it. */
  readonly account?: Account | undefined
  /** That of the request, in the same way. */
  readonly readSecrets?: ReadSecrets | undefined
}

const NONE: readonly never[] = []

/** The value that an action leaves for later expressions, by result name. */
export type ActionResult = Readonly<Record<string, unknown>>

/** One request and its response, or one connection, as a running policy sees and changes it. */
export class PolicyExchange {
  readonly connection: Connection
  readonly endpoint: EndpointFacts
  readonly request: PolicyRequest | undefined
  readonly hops: number
  readonly trace: PolicyTrace | undefined
  readonly endTls: EndTls | undefined
  /** Budget of all policies of the request together. */
  readonly account: Account
  /** Stands for the client's address while it is decided under which key a request counts. */
  countedIp: string | undefined
  /** Set by the policy that runs. */
  secrets: PolicySecrets | undefined
  /** Whether ambiguous paths are refused, including paths that a rule made. */
  guardsPath = false
  /** Set by the ingress before the response phase. */
  response: PolicyResponse | undefined
  // Created on demand: most requests need none of them.
  #requestTransforms: BodyTransform[] | undefined
  #responseTransforms: BodyTransform[] | undefined
  #addedFields: string[] | undefined
  #logged: Readonly<Record<string, unknown>>[] | undefined
  #results: Map<string, ActionResult> | undefined
  #vars: Map<string, unknown> | undefined
  #observers: ((status: number | undefined) => void)[] | undefined
  #parsed: ParsedFields | undefined
  #lookUps: AddressLookUps | undefined
  #readSecrets: ReadSecrets | undefined
  readonly #askDepth: (() => number) | undefined

  constructor(options: PolicyExchangeOptions) {
    this.connection = options.connection
    this.endpoint = options.endpoint
    this.request = options.request
    this.hops = options.hops ?? 0
    this.#askDepth = options.askDepth
    this.trace = options.trace
    this.endTls = options.endTls
    this.account = options.account ?? new Account()
    this.#readSecrets = options.readSecrets
  }

  /** The value of a secret. Throws EvaluationError if the policy cannot use it. */
  readSecret(secret: SecretName): string {
    const value = this.secrets?.read(secret)
    if (value === undefined) {
      throw new EvaluationError(`the secret ${secret.vault}/${secret.name} is not available`)
    }
    this.readSecrets.add(value)
    return value
  }

  /** Changes of the request body by actions, in order. */
  get requestTransforms(): readonly BodyTransform[] {
    return this.#requestTransforms ?? NONE
  }

  /** The same of the response. */
  get responseTransforms(): readonly BodyTransform[] {
    return this.#responseTransforms ?? NONE
  }

  /** Names and values in turn. The client receives them in addition to the fields of any response. */
  get addedFields(): readonly string[] {
    return this.#addedFields ?? NONE
  }

  /** Metadata of the log actions that ran. */
  get logged(): readonly Readonly<Record<string, unknown>>[] {
    return this.#logged ?? NONE
  }

  /** `actions.ngrok.<name>` of the actions that ran; the last run of an action wins. */
  get results(): Map<string, ActionResult> {
    this.#results ??= new Map()
    return this.#results
  }

  /** `vars.<name>` of the phase that is running. */
  get vars(): Map<string, unknown> {
    this.#vars ??= new Map()
    return this.#vars
  }

  /** Fields that were taken apart already. */
  get parsed(): ParsedFields {
    this.#parsed ??= new ParsedFields()
    return this.#parsed
  }

  /** Secrets that policies have read for the request, to mask them in logs. */
  get readSecrets(): ReadSecrets {
    this.#readSecrets ??= new ReadSecrets()
    return this.#readSecrets
  }

  /** Cached results of address tables. */
  get lookUps(): AddressLookUps {
    this.#lookUps ??= new AddressLookUps()
    return this.#lookUps
  }

  /** How many http-request actions led here. */
  get askDepth(): number {
    return this.#askDepth?.() ?? 0
  }

  /** Clears the variables before another phase. */
  forgetVars(): void {
    this.#vars?.clear()
  }

  transformRequest(transform: BodyTransform): void {
    this.#requestTransforms ??= []
    this.#requestTransforms.push(transform)
  }

  transformResponse(transform: BodyTransform): void {
    this.#responseTransforms ??= []
    this.#responseTransforms.push(transform)
  }

  /** Name and value in turn. */
  addFields(fields: readonly string[]): void {
    this.#addedFields ??= []
    this.#addedFields.push(...fields)
  }

  log(metadata: Readonly<Record<string, unknown>>): void {
    this.#logged ??= []
    this.#logged.push(metadata)
  }

  /** Calls back once with the upstream's status, or undefined when there was no valid answer. */
  whenUpstreamEnds(observer: (status: number | undefined) => void): void {
    this.#observers ??= []
    this.#observers.push(observer)
  }

  /** The ingress tells, once per forwarded request, how the upstream did. */
  upstreamEnded(status: number | undefined): void {
    const observers = this.#observers
    this.#observers = undefined
    for (const observer of observers ?? NONE) observer(status)
  }
}
