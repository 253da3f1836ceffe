import type { Pace, ProxyStream } from '../../streams/proxy-stream.ts'
import type { OutgoingResponse } from '../common/client.ts'
import {
  FAILURE_CODES,
  type ForwardFailure,
  type ForwardOwner,
  type PeerVerdict,
} from '../device/forward.ts'
import { responseFields } from '../device/forwarded-headers.ts'
import { GrowingBuffer } from '../syntax/growing-buffer.ts'
import type { ResponseHead } from '../syntax/response-head.ts'
import type { ExchangeCore } from './exchange-core.ts'
import { Upgrade } from './upgrade.ts'
import { WebSocketConversion } from './websocket-conversion.ts'

const NO_TRANSFORMS: OutgoingResponse['transforms'] = []

/** The exchange, as the owner of a stream; see `StreamWaiter`. */
export type StreamUser = Pick<ForwardOwner, 'pace' | 'isLasting' | 'evict'>

/** Decides how an exchange goes on that gets no response. */
export type FailureOwner = Pick<ForwardOwner, 'onFailure' | 'onVerdict'>

/** The response part of an exchange: from the device through the policy to the client. */
export class ResponseWay implements ForwardOwner {
  readonly #core: ExchangeCore
  readonly #user: StreamUser
  readonly #failures: FailureOwner

  constructor(core: ExchangeCore, user: StreamUser, failures: FailureOwner) {
    this.#core = core
    this.#user = user
    this.#failures = failures
  }

  get pace(): Pace {
    return this.#user.pace
  }

  get isLasting(): boolean {
    return this.#user.isLasting
  }

  evict(): void {
    this.#user.evict()
  }

  onFailure(failure: ForwardFailure): void {
    this.#failures.onFailure(failure)
  }

  onVerdict(verdict: PeerVerdict): void {
    this.#failures.onVerdict(verdict)
  }

  onInterim(head: ResponseHead): void {
    if (this.#core.state.name !== 'forwarding') return
    if (head.status === 100 && !this.#core.request.markContinued()) return
    this.#core.writer.interim(head.status, head.reason, responseFields(head))
  }

  onResponse(head: ResponseHead, isMore: boolean): void {
    const state = this.#core.state
    if (state.name !== 'forwarding') return
    const { forward, policy } = state
    const { status, reason, framing, contentLength } = head
    const fields = responseFields(head, state.forward.isToPeer)
    policy?.upstreamEnded(status)
    if (!policy?.hasResponseRules) {
      const transforms = NO_TRANSFORMS
      const response = { status, reason, fields, framing, contentLength, transforms }
      this.#core.respond(response, forward, isMore)
      return
    }
    const held = new GrowingBuffer()
    this.#core.become({ name: 'judging-response', forward, policy, held })
    this.#core.judge(policy.judgeResponse(status, fields), (outcome) => {
      if (outcome.kind !== 'continue') {
        this.#core.followEnd(outcome)
        return
      }
      const response = {
        reason,
        framing,
        contentLength,
        transforms: policy.responseTransforms,
        ...policy.response,
      }
      const isComplete = forward.isOver
      this.#core.respond(response, forward, isMore || isComplete || held.length > 0)
      const hasRoom = held.length === 0 || this.#core.writer.write(held.take(), false)
      if (isComplete) this.#core.writer.finish()
      else if (hasRoom) forward.onRoom()
    })
  }

  onBody(chunk: Buffer, isLent: boolean): boolean {
    const state = this.#core.state
    if (state.name === 'responding') return this.#core.writer.write(chunk, isLent)
    if (state.name === 'judging-response') {
      state.held.append(chunk)
      this.#core.client.countHeld()
    }
    return false
  }

  onHeld(): void {
    this.#core.client.countHeld()
  }

  onComplete(): void {
    if (this.#core.state.name === 'responding') this.#core.writer.finish()
  }

  onSwitch(head: ResponseHead, rest: Buffer, stream: ProxyStream): void {
    const state = this.#core.state
    if (state.name !== 'forwarding' || this.#core.request.head.upgrade === undefined) {
      stream.retire()
      this.#core.failOnDevice(FAILURE_CODES.invalid)
      return
    }
    stream.markSwitched()
    const { status, reason, framing } = head
    state.policy?.upstreamEnded(status)
    const fields = this.#core.withAdded(responseFields(head, state.forward.isToPeer))
    this.#core.writer.begin({ status, reason, fields, framing, transforms: NO_TRANSFORMS }, false)
    const isConverted = state.to.type === 'agent' && state.to.isBehindWebSocket
    const Passage = isConverted ? WebSocketConversion : Upgrade
    const { limits } = this.#core.context
    const upgrade = new Passage({
      client: this.#core.client,
      stream,
      traffic: this.#core.traffic,
      limits: { ...limits, silenceMs: limits.idleMs },
      onOver: (bytesIn, bytesOut) => {
        this.#core.conclude(bytesIn, bytesOut)
        this.#core.client.exchangeDone(false)
      },
      onUnreachable: () => this.#core.countUnreachable(),
    })
    this.#core.become({ name: 'switched', upgrade })
    this.#core.client.switched()
    if (rest.length > 0) upgrade.onData(rest)
  }
}
