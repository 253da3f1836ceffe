import type { Reply } from '../../../policy/exchange/outcome.ts'
import type { ProxyStream } from '../../streams/proxy-stream.ts'
import type { OutgoingResponse } from '../common/response-writer.ts'
import type { ForwardFailure, ForwardOwner, PeerVerdict } from '../device/forward.ts'
import { responseFields } from '../device/forwarded-headers.ts'
import { GrowingBuffer } from '../syntax/growing-buffer.ts'
import type { ResponseHead } from '../syntax/response-head.ts'
import { ClientExchange } from './client-exchange.ts'
import type { PolicyRun } from './policy-run.ts'
import { Upgrade } from './upgrade.ts'
import { WebSocketConversion } from './websocket-conversion.ts'

const NO_TRANSFORMS: OutgoingResponse['transforms'] = []

/** The way back of an exchange: what the device answers, past the policy, to the client. */
export abstract class AnsweredExchange extends ClientExchange implements ForwardOwner {
  abstract onFailure(failure: ForwardFailure): void
  abstract onVerdict(verdict: PeerVerdict): void

  onInterim(head: ResponseHead): void {
    if (this.state.name !== 'forwarding') return
    if (head.status === 100 && !this.request.markContinued()) return
    this.writer.interim(head.status, head.reason, responseFields(head))
  }

  onResponse(head: ResponseHead, isMore: boolean): void {
    const state = this.state
    if (state.name !== 'forwarding') return
    const { forward, policy } = state
    const { status, reason, framing, contentLength } = head
    const fields = responseFields(head, state.forward.isToPeer)
    policy?.upstreamEnded(status)
    if (!policy?.hasResponseRules) {
      const transforms = NO_TRANSFORMS
      const response = { status, reason, fields, framing, contentLength, transforms }
      this.respond(response, forward, isMore)
      return
    }
    const held = new GrowingBuffer()
    this.become({ name: 'judging-response', forward, policy, held })
    this.judge(policy.judgeResponse(status, fields), (outcome) => {
      if (outcome.kind !== 'continue') {
        this.followEnd(outcome)
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
      this.respond(response, forward, isMore || isComplete || held.length > 0)
      const hasRoom = held.length === 0 || this.writer.write(held.take())
      if (isComplete) this.writer.finish()
      else if (hasRoom) forward.onRoom()
    })
  }

  onBody(chunk: Buffer): boolean {
    const state = this.state
    if (state.name === 'responding') return this.writer.write(chunk)
    if (state.name === 'judging-response') {
      state.held.append(chunk)
      this.client.countHeld()
    }
    return false
  }

  onHeld(): void {
    this.client.countHeld()
  }

  onComplete(): void {
    if (this.state.name === 'responding') this.writer.finish()
  }

  onSwitch(head: ResponseHead, rest: Buffer, stream: ProxyStream): void {
    const state = this.state
    if (state.name !== 'forwarding' || this.request.head.upgrade === undefined) {
      stream.retire()
      this.onFailure('invalid')
      return
    }
    stream.markSwitched()
    const { status, reason, framing } = head
    state.policy?.upstreamEnded(status)
    const fields = this.withAdded(responseFields(head, state.forward.isToPeer))
    this.writer.begin({ status, reason, fields, framing, transforms: NO_TRANSFORMS }, false)
    const isConverted = state.to.type === 'agent' && state.to.isBehindWebSocket
    const Passage = isConverted ? WebSocketConversion : Upgrade
    const { limits } = this.context
    const upgrade = new Passage({
      client: this.client,
      stream,
      traffic: this.traffic,
      limits: { ...limits, silenceMs: limits.idleMs },
      onOver: (bytesIn, bytesOut) => {
        this.conclude(bytesIn, bytesOut)
        this.client.exchangeDone(false)
      },
      onUnreachable: () => this.countUnreachable(),
    })
    this.become({ name: 'switched', upgrade })
    this.client.switched()
    if (rest.length > 0) upgrade.onData(rest)
  }

  /** Sends what a policy has made, past its response phase. */
  protected answer(reply: Reply, policy: PolicyRun): void {
    const { status, headers, body, errorCode } = reply
    this.giveUp()
    this.traffic.refuse(errorCode)
    if (!policy.hasResponseRules) {
      this.reply({ status, fields: headers, body }, true)
      return
    }
    this.become({ name: 'judging-reply', policy })
    this.judge(policy.judgeResponse(status, headers), (outcome) => {
      const { response, responseTransforms: transforms } = policy
      if (outcome.kind !== 'continue') {
        this.followEnd(outcome)
      } else if (transforms.length === 0) {
        this.reply({ ...response, body }, true)
      } else {
        const content = Buffer.from(body)
        const framing = content.length
        this.respond({ ...response, reason: undefined, framing, transforms }, undefined, true)
        this.writer.write(content)
        this.writer.finish()
      }
    })
  }
}
