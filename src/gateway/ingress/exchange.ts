import type { MaybePromise, Outcome, Reply } from '../../policy/exchange/outcome.ts'
import type { BodyTransform } from '../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../endpoints/endpoint.ts'
import type { ProxyStream } from '../streams/stream-pool.ts'
import { logExchange } from './access-log.ts'
import type { Client } from './client.ts'
import { type EdgeErrorCode, edgeErrorReply } from './edge-error.ts'
import { ExchangeTraffic } from './exchange-traffic.ts'
import type { ForwardFailure } from './forward.ts'
import { requestFields } from './forwarded-headers.ts'
import { admit, redirectToHttps } from './front.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'
import type { IngressContext } from './ingress-context.ts'
import type { LocalReply } from './local-reply.ts'
import { OutgoingRequest } from './outgoing-request.ts'
import { PolicyRun } from './policy-run.ts'
import { ProgressWatch } from './progress-watch.ts'
import { RequestBody } from './request-body.ts'
import type { RequestHead } from './request-head.ts'
import { type RelayOwner, ResponseRelay } from './response-relay.ts'
import { Upgrade } from './upgrade.ts'

const FAILURE_CODES: Record<ForwardFailure | 'transform', EdgeErrorCode> = {
  busy: 'ERR_NGROK_724',
  lost: 'ERR_NGROK_3210',
  unreachable: 'ERR_NGROK_8012',
  invalid: 'ERR_NGROK_3004',
  broken: 'ERR_NGROK_3004',
  transform: 'ERR_NGROK_2254',
}

/** What a policy hears of a device that the gateway did not wait for: no fault of the device. */
const NOT_AWAITED = 499

/** One request of a client, from its head to the end of the response. */
export class Exchange implements RelayOwner {
  readonly traffic = new ExchangeTraffic()
  readonly #context: IngressContext
  readonly #client: Client
  readonly #head: RequestHead
  readonly #body: RequestBody | undefined
  readonly #request: OutgoingRequest
  readonly #relay: ResponseRelay
  readonly #startedAt: number
  #endpoint: Endpoint | undefined
  #policy: PolicyRun | undefined
  #watch: ProgressWatch | undefined
  /** Bytes of the request body up to which it is worth reading on; set with the whole response. */
  #discardUntil: number | undefined
  #isOver = false

  constructor(context: IngressContext, client: Client, head: RequestHead) {
    this.#context = context
    this.#client = client
    this.#head = head
    this.#body =
      head.framing === 0 ? undefined : new RequestBody(head.framing, client, context.clock)
    this.#relay = new ResponseRelay(client, head, this)
    this.#request = new OutgoingRequest({ client, head, body: this.#body, relay: this.#relay })
    this.#startedAt = context.log.isLevelEnabled('debug') ? context.clock.monotonic() : 0
  }

  /** True when the client has its whole response and only its request is unfinished. */
  get isAnswered(): boolean {
    return this.#discardUntil !== undefined
  }

  /** Finds the endpoint and sends the request on. */
  start(): void {
    const { hostname, target } = this.#head
    const { front, ip } = this.#client
    const endpoint = this.#context.registry.match(hostname)
    const verdict = endpoint ? admit(front, endpoint) : 'refuse'
    if (!endpoint || verdict === 'refuse') this.#refuse('ERR_NGROK_3200', true)
    else if (verdict === 'redirect') this.#reply(redirectToHttps(endpoint, hostname, target), true)
    else this.#enter(endpoint, target, requestFields(this.#head, ip, front.scheme))
  }

  /** Takes what belongs to the request body; answers the offset behind it. */
  takeBody(chunk: Buffer, from: number): number {
    const body = this.#body
    if (!body) return from
    try {
      const end = body.take(chunk, from)
      this.traffic.receive(end - from)
      if (this.#discardUntil !== undefined) this.#settle(this.#discardUntil)
      return end
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      this.#refuse('ERR_GATEWAY_BAD_REQUEST', false, `It has ${error.message}.`)
      return chunk.length
    }
  }

  /** The client's socket has taken what it was given. */
  onClientRoom(): void {
    this.#relay.writer.onClientRoom()
  }

  /** The client is gone: nobody wants the response any more. */
  abandon(): void {
    if (this.#isOver) return
    this.#giveUp()
    this.#conclude()
  }

  /** Ends an exchange that does not move; `now` is monotonic. */
  sweep(now: number): void {
    this.#watch ??= new ProgressWatch(this.#context.limits)
    const { forward, writer, unreleased } = this.#relay
    const bodyBytes = this.#body?.bytes ?? 0
    const movedBytes = bodyBytes + (forward?.received ?? 0) + writer.bytes - unreleased
    const awaitedBodyBytes = this.#isBodyAwaited() ? bodyBytes : undefined
    const stall = this.#watch.look({ movedBytes, awaitedBodyBytes }, now)
    if (stall === 'slow-body') {
      this.#refuse('ERR_GATEWAY_REQUEST_TIMEOUT', false)
    } else if (stall === 'silence') {
      this.#policy?.upstreamEnded(undefined)
      this.#refuse('ERR_NGROK_3005', false)
    }
  }

  onAnswered(): void {
    const body = this.#body
    if (!body || body.isDone || !this.#relay.writer.keepAlive) {
      this.#finish()
    } else {
      // A rest of the request that nobody wants any more is dropped, if it is not too long.
      this.#discardUntil = body.bytes + this.#context.limits.discardedBytes
      body.discard()
      this.#settle(this.#discardUntil)
    }
  }

  onFailed(failure: ForwardFailure | 'transform', err?: Error): void {
    if (err) this.#context.log.info({ err, endpoint: this.#endpoint?.id }, 'body not transformed')
    this.#refuse(FAILURE_CODES[failure], true)
  }

  onSwitched(rest: Buffer, stream: ProxyStream): void {
    if (!this.#endpoint) return
    this.#isOver = true
    const upgrade = new Upgrade({
      client: this.#client,
      stream,
      traffic: this.traffic,
      limits: this.#context.limits,
      onOver: (bytesIn, bytesOut) => this.#conclude(bytesIn, bytesOut),
    })
    this.#client.upgraded(upgrade)
    if (rest.length > 0) upgrade.onData(rest)
  }

  onJudged(outcome: MaybePromise<Outcome>, next: () => void): void {
    if (!(outcome instanceof Promise)) {
      this.#follow(outcome, next)
      return
    }
    outcome
      .then((settled) => {
        if (this.#isAwaited) this.#follow(settled, next)
      })
      .catch((err) => {
        this.#context.log.error({ err, endpoint: this.#endpoint?.id }, 'policy failed')
        if (this.#isAwaited) this.#refuse('ERR_NGROK_2254', false)
      })
  }

  /** Sends the request to an endpoint, past its policy if it has one. */
  #enter(endpoint: Endpoint, target: string, fields: string[]): void {
    this.#endpoint = endpoint
    this.traffic.enter(endpoint.traffic)
    if (!this.#policy && !hasRules(endpoint)) {
      this.#deliver(endpoint, target, fields)
      return
    }
    const receivedAt = this.#policy?.receivedAt ?? this.#context.clock.now()
    const policy = new PolicyRun({
      endpoint,
      client: this.#client,
      head: this.#head,
      target,
      fields,
      receivedAt,
      bodyReceivedAt: () => (this.#body ? this.#body.receivedAt : receivedAt),
      readBody: (maxBytes) =>
        this.#isAwaited ? this.#request.readBody(maxBytes) : Promise.resolve(undefined),
      outer: this.#policy,
    })
    this.#policy = policy
    this.#relay.policy = policy
    this.onJudged(policy.judgeRequest(), () => {
      this.#deliver(endpoint, policy.target, policy.fields, policy.requestTransforms)
    })
  }

  /** Sends the request to the device; nobody stands behind a cloud endpoint. */
  #deliver(
    endpoint: Endpoint,
    target: string,
    fields: readonly string[],
    transforms?: readonly BodyTransform[],
  ): void {
    if (endpoint.type === 'cloud') this.#refuse('ERR_NGROK_6029', true)
    else this.#request.send(endpoint, target, fields, transforms)
  }

  #follow(outcome: Outcome, next: () => void): void {
    switch (outcome.kind) {
      case 'continue':
        next()
        break
      case 'respond':
        this.#giveUp()
        this.#answer(outcome.reply, outcome.runsResponsePhase)
        break
      case 'forward':
        this.#handOn(outcome.url)
        break
      case 'close':
        this.#giveUp()
        this.#conclude()
        this.#client.abort()
    }
  }

  /** Sends the request to an internal endpoint, whose policy runs in its turn. */
  #handOn(url: string): void {
    const endpoint = this.#context.registry.matchInternal(new URL(url))
    const policy = this.#policy
    if (endpoint && policy) this.#enter(endpoint, policy.target, [...policy.fields])
    else this.#refuse('ERR_NGROK_3200', true)
  }

  /** Sends what a policy has made; its response phase may have a look at it. */
  #answer({ status, headers, body, errorCode }: Reply, runsResponsePhase: boolean): void {
    const policy = this.#policy
    this.traffic.refuse(errorCode)
    if (!runsResponsePhase || !policy?.hasResponseRules) {
      this.#reply({ status, fields: headers, body }, true)
      return
    }
    this.onJudged(policy.judgeResponse(status, headers), () => {
      const { response, responseTransforms: transforms } = policy
      if (transforms.length === 0) {
        this.#reply({ ...response, body }, true)
        return
      }
      const { writer } = this.#relay
      const content = Buffer.from(body)
      writer.begin({ ...response, reason: undefined, framing: content.length, transforms }, true)
      writer.write(content)
      writer.finish()
    })
  }

  /** Ends the exchange with an error: as an answer while nothing was answered, else abruptly. */
  #refuse(code: EdgeErrorCode, mayGoOn: boolean, detail?: string): void {
    this.#giveUp()
    this.traffic.refuse(code)
    if (this.#relay.writer.hasBegun) {
      this.#conclude()
      this.#client.abort()
    } else {
      this.#reply(edgeErrorReply(code, acceptOf(this.#head), detail), mayGoOn)
    }
  }

  #reply(reply: LocalReply, mayGoOn: boolean): void {
    const goesOn = mayGoOn && this.#head.keepAlive && !this.#client.isStopping
    const keepAlive = goesOn && this.#isRestShort()
    this.#relay.writer.reply(reply, keepAlive, this.#context.clock.now())
    this.onAnswered()
  }

  /** False once the client has a whole response: a verdict that comes later means nothing. */
  get #isAwaited(): boolean {
    return !this.#isOver && !this.isAnswered
  }

  /** True when what may still come of the body is less trouble than a new connection. */
  #isRestShort(): boolean {
    if (!this.#body || this.#body.isDone) return true
    const { expectsContinue, framing } = this.#head
    // Who waits for a 100 may send the body after another answer, or not: nobody can tell.
    const isUnasked = expectsContinue && !this.#relay.isContinued
    return !isUnasked && framing <= this.#context.limits.discardedBytes
  }

  /** True while it is the client's turn to send more of the body. */
  #isBodyAwaited(): boolean {
    const body = this.#body
    if (!body || body.isDone || body.isBlocked) return false
    // Who waits for a 100 has the right to be silent until then.
    return !this.#head.expectsContinue || this.#relay.isContinued || body.bytes > 0
  }

  #giveUp(): void {
    this.#request.abandon()
    this.#relay.abandon()
    this.#policy?.upstreamEnded(NOT_AWAITED)
  }

  #settle(discardUntil: number): void {
    const body = this.#body
    if (!this.#isOver && (!body || body.isDone || body.bytes > discardUntil)) this.#finish()
  }

  #finish(): void {
    this.#conclude()
    const isBodyDone = this.#body === undefined || this.#body.isDone
    this.#client.exchangeDone(this.#relay.writer.keepAlive && isBodyDone)
  }

  /** What an upgrade moved afterwards is given, and was counted already. */
  #conclude(upgradeIn = 0, upgradeOut = 0): void {
    this.#isOver = true
    const { log, clock } = this.#context
    const { status, bytes } = this.#relay.writer
    this.traffic.end()
    if (!log.isLevelEnabled('debug')) return
    logExchange(log, {
      head: this.#head,
      clientIp: this.#client.ip,
      status,
      bytesIn: (this.#body?.bytes ?? 0) + upgradeIn,
      bytesOut: bytes + upgradeOut,
      ms: Math.round(clock.monotonic() - this.#startedAt),
    })
  }
}

function hasRules({ policy }: Endpoint): boolean {
  return policy.hasConnectRules || policy.hasRequestRules || policy.hasResponseRules
}

function acceptOf({ fields }: RequestHead): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === 'accept')
  return fields[at + 1] ?? ''
}
