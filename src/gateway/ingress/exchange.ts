import type { Reply } from '../../policy/exchange/outcome.ts'
import type { AwayName, HeldRequest } from '../endpoints/away-name.ts'
import type { AgentEndpoint, Endpoint } from '../endpoints/endpoint.ts'
import type { NameState } from '../endpoints/host-table.ts'
import type { ProxyStream } from '../streams/proxy-stream.ts'
import { ClientExchange, type ParkedState } from './client-exchange.ts'
import { type DeviceRequest, sizeOf } from './device/device-request.ts'
import type { Forward, ForwardFailure, ForwardOwner } from './device/forward.ts'
import { Http1Forward } from './device/http1-forward.ts'
import { Http2Forward } from './device/http2-forward.ts'
import { Losses } from './device/losses.ts'
import { type EdgeErrorCode, FAILURE_CODES } from './edge-error.ts'
import { requestFields, responseFields } from './http1/forwarded-headers.ts'
import { GrowingBuffer } from './http1/growing-buffer.ts'
import type { ResponseHead } from './http1/response-head.ts'
import { admit, redirectToHttps } from './ingress-listener.ts'
import { PolicyRun, unjudgedFields } from './policy-run.ts'
import type { OutgoingResponse } from './response-writer.ts'
import { Upgrade } from './upgrade.ts'
import { acceptWebSocket } from './websocket/handshake.ts'
import { WebSocketConversion } from './websocket/websocket-conversion.ts'

const NO_TRANSFORMS: OutgoingResponse['transforms'] = []

/**
 * One request of a client, from its head to the end of the response.
 *
 * INVARIANTS
 * - It is in one state of `exchange-state.ts`, and only `become` changes that. What does not
 *   belong to the state it comes in, a verdict above all, is late and does nothing.
 * - The client gets at most one final response. It begins on the way to `responding`, or whole on
 *   the way to `draining` and `over`; no state behind those can begin one.
 * - A response ends cleanly only when the device's has: what breaks after its begin is told by
 *   `client.abort()`, before that by an answer of the gateway.
 * - The parts know each other through it alone: `Forward` and `ResponseWriter` call their owner
 *   interfaces, the connection the public methods, and none of them touches a field here.
 * - On the way to `over` what the state held is let go: a forward has ended, its stream is back or
 *   given up. `client.exchangeDone()` or `client.abort()` follows once, unless the client is gone.
 */
export class Exchange extends ClientExchange implements ForwardOwner {
  readonly #losses = new Losses()

  /** Finds the endpoint and sends the request on. */
  start(): void {
    const { hostname, target } = this.request.head
    const found = this.#find(hostname)
    const verdict = found ? admit(this.client.listener, found) : 'refuse'
    if (!found || verdict === 'refuse') this.fail('ERR_NGROK_3200', true)
    else if (verdict === 'misdirect') this.fail('ERR_GATEWAY_MISDIRECTED', true)
    else if (verdict === 'redirect') this.reply(redirectToHttps(found, hostname, target), true)
    else if (found.type === 'away') this.#park(found, undefined, () => this.start())
    else this.#enterFirst(found)
  }

  onInterim(head: ResponseHead): void {
    if (this.state.name !== 'forwarding') return
    if (head.status === 100 && !this.request.markContinued()) return
    this.writer.interim(head.status, head.reason, responseFields(head))
  }

  onResponse(head: ResponseHead, isMore: boolean): void {
    const state = this.state
    if (state.name !== 'forwarding') return
    const { forward, policy } = state
    const { status, reason, framing } = head
    const fields = responseFields(head)
    policy?.upstreamEnded(status)
    if (!policy?.hasResponseRules) {
      const response = { status, reason, fields, framing, transforms: NO_TRANSFORMS }
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
    const fields = this.withAdded(responseFields(head))
    this.writer.begin({ status, reason, fields, framing, transforms: NO_TRANSFORMS }, false)
    const Passage = state.endpoint.isBehindWebSocket ? WebSocketConversion : Upgrade
    const upgrade = new Passage({
      client: this.client,
      stream,
      traffic: this.traffic,
      limits: this.context.limits,
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

  onFailure(failure: ForwardFailure): void {
    const state = this.state
    if (state.name === 'forwarding' && failure === 'lost' && this.#mayGoOutAgain(state.forward)) {
      const { endpoint, forward, policy } = state
      const goOn = () => this.#follow(endpoint, forward, policy)
      const parked: ParkedState = { name: 'parked', policy, hold: undefined, goOn }
      this.become(parked)
      // The session that was lost has still to withdraw its names.
      setImmediate(() => this.client.guard(() => this.goOn(parked)))
      return
    }
    this.#failOnDevice(FAILURE_CODES[failure])
  }

  #mayGoOutAgain({ wasSent }: Forward): boolean {
    const { head, body } = this.request
    const { isSilent } = this.writer
    return this.#losses.mayGoOutAgain({ wasSent, method: head.method, hasBody: !!body, isSilent })
  }

  #failOnDevice(code: EdgeErrorCode): void {
    const state = this.state
    if ('policy' in state) state.policy?.upstreamEnded(undefined)
    this.fail(code, true)
  }

  /** Waits for a name whose device is away; `goOn` is called when that may have changed. */
  #park(away: AwayName, policy: PolicyRun | undefined, goOn: () => void): void {
    const request: HeldRequest = {
      network: this.client.network,
      bytes: this.request.memoryBytes,
      onNameChange: () => this.client.guard(() => this.goOn(parked)),
    }
    const parked: ParkedState = { name: 'parked', policy, hold: { away, request }, goOn }
    if (this.context.registry.wait(away, request)) this.become(parked)
    else this.#failOnDevice('ERR_GATEWAY_AWAY')
  }

  /**
   * After `endpoint` was lost: goes to what has its name now, past a policy that has judged. Another
   * member of its pool has a policy of its own.
   */
  #follow(endpoint: AgentEndpoint, lost: Forward, policy: PolicyRun | undefined): void {
    const next = this.context.registry.successorOf(endpoint, this.client.network)
    if (next?.type === 'away') {
      this.#park(next, policy, () => this.#follow(endpoint, lost, policy))
    } else if (!next || next === endpoint || next.protocol !== endpoint.protocol) {
      this.#failOnDevice('ERR_NGROK_3210')
    } else if (!policy) {
      this.#enterFirst(next)
    } else if (next.poolMember !== endpoint.poolMember) {
      this.#enterInstead(next, lost, policy)
    } else if (next.type === 'agent') {
      this.enterEndpoint(next, false)
      this.#send(next, lost.request, policy)
    } else {
      this.#failOnDevice('ERR_NGROK_3210')
    }
  }

  /** Sends the request to the endpoint that it is for, as it came. */
  #enterFirst(endpoint: Endpoint): void {
    const { head } = this.request
    const { listener, ip } = this.client
    this.#enter(endpoint, head.target, requestFields(head, ip, listener.scheme), undefined)
  }

  /** Sends the request to another member of a pool, as it came to the one that was lost. */
  #enterInstead(endpoint: Endpoint, lost: Forward, policy: PolicyRun): void {
    if (lost.request.body !== this.request.body) {
      // Its body was read and changed on the way to the first.
      this.#failOnDevice('ERR_NGROK_3210')
      return
    }
    policy.leave()
    const { outer } = policy
    if (!outer) this.#enterFirst(endpoint)
    else this.#enter(endpoint, outer.target, [...outer.fields], outer, true)
  }

  /** Visitors find public endpoints, and policies that ask internal ones. */
  #find(hostname: string): NameState | undefined {
    const { registry } = this.context
    const { network } = this.client
    const { internal, scheme } = this.client.listener
    return internal
      ? registry.matchInternal(new URL(`${scheme}://${hostname}`), internal.ownerId, network)
      : registry.match(hostname, scheme, network)
  }

  /** How many policies have asked each other to get here. */
  #askDepth(): number {
    const { internal } = this.client.listener
    return internal ? internal.asker.depth : this.context.askSeal.depthOf(this.request.head.fields)
  }

  /** Sends the request to an endpoint, past its policy if it has one, or one was met before. */
  #enter(
    endpoint: Endpoint,
    target: string,
    fields: string[],
    outer: PolicyRun | undefined,
    isInstead = false,
  ): void {
    this.enterEndpoint(endpoint, outer !== undefined && !isInstead)
    if (!outer && !hasRules(endpoint)) {
      this.#deliver(endpoint, target, unjudgedFields(endpoint, fields), undefined)
      return
    }
    const receivedAt = outer?.receivedAt ?? this.context.clock.now()
    const request = this.request
    const policy = new PolicyRun({
      endpoint,
      client: this.client,
      head: request.head,
      target,
      fields,
      receivedAt,
      bodyReceivedAt: () => (request.body ? request.body.receivedAt : receivedAt),
      readBody: (maxBytes) => this.#readBody(maxBytes),
      askDepth: () => this.#askDepth(),
      account: this.client.listener.internal?.asker.account,
      outer,
    })
    this.become({ name: 'judging-request', policy })
    this.judge(policy.judgeRequest(), (outcome) => {
      if (outcome.kind === 'continue') {
        this.#deliver(endpoint, policy.target, policy.deviceFields, policy)
      } else if (outcome.kind === 'forward') {
        this.#handOn(outcome.url, policy, endpoint)
      } else if (outcome.kind === 'respond' && outcome.runsResponsePhase) {
        this.#answer(outcome.reply, policy)
      } else {
        this.followEnd(outcome)
      }
    })
  }

  /** A policy may look into a request that waits for it, and no longer. */
  #readBody(maxBytes: number): Promise<Buffer | undefined> {
    const { name } = this.state
    return name === 'judging-request' || name === 'judging-response'
      ? this.request.readBody(maxBytes)
      : Promise.resolve(undefined)
  }

  /** Sends the request to the device; nobody stands behind a cloud endpoint. */
  #deliver(
    endpoint: Endpoint,
    target: string,
    fields: readonly string[],
    policy: PolicyRun | undefined,
  ): void {
    const request = this.request
    const { body } = request
    if (endpoint.type === 'cloud') {
      this.fail('ERR_NGROK_6029', true)
      return
    }
    const transforms = policy?.requestTransforms ?? NO_TRANSFORMS
    if (!policy || !body || transforms.length === 0) {
      this.#forward(endpoint, request.toDevice(target, fields), policy)
      return
    }
    const onContent = (content: Buffer) => {
      if (this.state.name !== 'preparing') return
      this.#forward(endpoint, request.toDeviceWhole(target, fields, content), policy)
    }
    const onError = (error: Error) => this.onTransformError(error)
    const pipe = request.transform(body, transforms, onContent, onError)
    this.become({ name: 'preparing', policy, pipe })
  }

  #forward(endpoint: AgentEndpoint, request: DeviceRequest, policy: PolicyRun | undefined): void {
    this.traffic.receive(sizeOf(request))
    this.#send(endpoint, request, policy)
  }

  #send(endpoint: AgentEndpoint, request: DeviceRequest, policy: PolicyRun | undefined): void {
    const { context } = this
    const { head } = this.request
    const accepted = endpoint.isBehindWebSocket ? acceptWebSocket(head) : undefined
    if (accepted === null) {
      this.fail('ERR_NGROK_3206', true)
      return
    }
    const speaksHttp2 = endpoint.appProtocol === 'http2'
    // An upgrade is a matter of HTTP/1.1: it goes as that, to a service that speaks both.
    const isHttp2 = speaksHttp2 && head.upgrade === undefined
    const options = {
      pool: endpoint.streams,
      client: this.client,
      request,
      accepted,
      scanner: this.client.responseScanner,
      owner: this,
      isAlone: speaksHttp2 && !isHttp2,
    }
    const forward = isHttp2
      ? new Http2Forward({ ...options, client: this.client, scheme: schemeOf(endpoint), context })
      : new Http1Forward(options)
    this.become({ name: 'forwarding', forward, policy, endpoint })
    forward.start()
  }

  /** Sends the request to an internal endpoint that `from` reaches; its policy runs in its turn. */
  #handOn(url: string, policy: PolicyRun, from: Endpoint): void {
    const { registry } = this.context
    const found = registry.matchInternal(new URL(url), from.ownerId, this.client.network)
    if (!found) this.fail('ERR_NGROK_3200', true)
    else if (found.type === 'away') this.#park(found, policy, () => this.#handOn(url, policy, from))
    else {
      // A session at the one account is not the other's.
      const { fields, deviceFields } = policy
      const handed = found.ownerId === from.ownerId ? fields : deviceFields
      this.#enter(found, policy.target, [...handed], policy)
    }
  }

  /** Sends what a policy has made, past its response phase. */
  #answer(reply: Reply, policy: PolicyRun): void {
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

function hasRules({ policy }: Endpoint): boolean {
  return policy.hasConnectRules || policy.hasRequestRules || policy.hasResponseRules
}

/** What the SDK speaks to the service. */
function schemeOf({ forwardsTo }: AgentEndpoint): 'http' | 'https' {
  return forwardsTo.startsWith('https://') ? 'https' : 'http'
}
