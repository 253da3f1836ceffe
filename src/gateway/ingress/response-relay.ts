import type { MaybePromise, Outcome } from '../../policy/exchange/outcome.ts'
import type { ProxyStream } from '../streams/stream-pool.ts'
import { BodyTracker } from './body-tracker.ts'
import type { Client } from './client.ts'
import type { ExchangeTraffic } from './exchange-traffic.ts'
import type { Forward, ForwardFailure, ForwardOwner } from './forward.ts'
import { responseFields } from './forwarded-headers.ts'
import type { PolicyRun } from './policy-run.ts'
import type { RequestHead } from './request-head.ts'
import type { ResponseHead } from './response-head.ts'
import { type OutgoingResponse, type ResponseOwner, ResponseWriter } from './response-writer.ts'

/** What becomes of a relayed response. One of the first three is called once. */
export interface RelayOwner {
  readonly traffic: ExchangeTraffic
  /** All of it is with the client's socket. */
  onAnswered(): void
  onFailed(failure: ForwardFailure | 'transform', error?: Error): void
  /** The client has its 101; the stream is the owner's. */
  onSwitched(rest: Buffer, stream: ProxyStream): void
  /** What the policy decides, `next` being what follows when it lets the response pass. */
  onJudged(outcome: MaybePromise<Outcome>, next: () => void): void
}

const NO_TRANSFORMS: OutgoingResponse['transforms'] = []

/** The response of a device on its way to the client, past the policy of its endpoint. */
export class ResponseRelay implements ForwardOwner, ResponseOwner {
  readonly writer: ResponseWriter
  readonly #head: RequestHead
  readonly #owner: RelayOwner
  /** Where the response comes from. */
  forward: Forward | undefined
  policy: PolicyRun | undefined
  /** The client was told to send its body, and is not told again. */
  isContinued = false
  /** What came of the body while the policy thinks. */
  #pending: { readonly body: Buffer[]; isComplete: boolean } | undefined
  /** Bytes of the body that wait for the client to take some. */
  unreleased = 0

  constructor(client: Client, head: RequestHead, owner: RelayOwner) {
    this.#head = head
    this.#owner = owner
    this.writer = new ResponseWriter(client, head, this)
  }

  get traffic(): ExchangeTraffic {
    return this.#owner.traffic
  }

  onInterim(head: ResponseHead): void {
    if (head.status === 100) {
      if (this.isContinued) return
      this.isContinued = true
    }
    this.writer.interim(head.status, head.reason, responseFields(head))
  }

  onResponse(head: ResponseHead, isMore: boolean): void {
    const { status, reason, framing } = head
    const fields = responseFields(head)
    const { policy } = this
    policy?.upstreamEnded(status)
    if (!policy?.hasResponseRules) {
      this.#begin({ status, reason, fields, framing, transforms: NO_TRANSFORMS }, isMore)
      return
    }
    this.#pending = { body: [], isComplete: false }
    this.#owner.onJudged(policy.judgeResponse(status, fields), () => {
      const { responseTransforms: transforms, response } = policy
      this.#resume({ reason, framing, transforms, ...response }, isMore)
    })
  }

  onBody(chunk: Buffer): void {
    if (this.#pending) this.#pending.body.push(chunk)
    else if (this.writer.write(chunk)) this.forward?.release(chunk.length)
    else this.unreleased += chunk.length
  }

  onComplete(): void {
    this.forward = undefined
    if (this.#pending) this.#pending.isComplete = true
    else this.writer.finish()
  }

  onSwitch(head: ResponseHead, rest: Buffer, stream: ProxyStream): void {
    this.forward = undefined
    if (this.#head.upgrade === undefined) {
      stream.retire()
      this.#owner.onFailed('invalid')
      return
    }
    const { status, reason, framing } = head
    this.policy?.upstreamEnded(status)
    const fields = responseFields(head)
    this.#begin({ status, reason, fields, framing, transforms: NO_TRANSFORMS }, false)
    this.#owner.onSwitched(rest, stream)
  }

  onFailure(failure: ForwardFailure): void {
    this.forward = undefined
    this.policy?.upstreamEnded(undefined)
    this.#owner.onFailed(failure)
  }

  onWriterRoom(): void {
    const bytes = this.unreleased
    this.unreleased = 0
    this.forward?.release(bytes)
  }

  onWritten(): void {
    this.#owner.onAnswered()
  }

  onTransformError(error: Error): void {
    this.#owner.onFailed('transform', error)
  }

  /** Drops what is under way: another answer follows, or none. */
  abandon(): void {
    this.#pending = undefined
    this.forward?.abort()
    this.forward = undefined
    this.writer.abandon()
  }

  #begin(response: OutgoingResponse, isMore: boolean): boolean {
    const isDecoded = this.writer.begin(response, isMore)
    if (this.forward) this.forward.decodesBody = isDecoded
    return isDecoded
  }

  /** Passes on what the policy has looked at, with what came of the body meanwhile. */
  #resume(response: OutgoingResponse, isMore: boolean): void {
    const { body = [], isComplete = false } = this.#pending ?? {}
    this.#pending = undefined
    const isDecoded = this.#begin(response, isMore || body.length > 0 || isComplete)
    const decoder = isDecoded ? new BodyTracker(response.framing) : undefined
    for (const chunk of body) this.onBody(decoder ? decoder.decode(chunk) : chunk)
    if (isComplete) this.writer.finish()
  }
}
