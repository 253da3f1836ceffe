import type { AgentEndpoint, Endpoint } from '../../endpoints/endpoint.ts'
import type { RemoteHome } from '../../endpoints/routes.ts'
import type { Route, Routes } from '../../endpoints/routes.ts'
import type { StreamPool } from '../../streams/stream-pool.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import { type DeviceRequest, sizeOf } from '../common/device-request.ts'
import type { EdgeErrorCode } from '../common/edge-error.ts'
import { admit, redirectToHttps } from '../common/ingress-listener.ts'
import { CertificateTooLargeError } from '../device/entry-facts.ts'
import {
  FAILURE_CODES,
  type Forward,
  type ForwardFailure,
  type PeerVerdict,
} from '../device/forward.ts'
import { requestFields } from '../device/forwarded-headers.ts'
import { Http1Forward } from '../device/http1-forward.ts'
import { Http2Forward } from '../device/http2-forward.ts'
import { PeerForward } from '../device/peer-forward.ts'
import { ACCEPTED_HEAD, peerFields, withVersion } from '../device/peer-head.ts'
import { AnsweredExchange } from './answered-exchange.ts'
import type { NameQuery } from './name-search.ts'
import { PolicyRun, unjudgedFields } from './policy-run.ts'
import { acceptWebSocket } from './websocket-handshake.ts'

/** How a request goes to another node. */
interface Passage {
  /** What has judged it here. */
  readonly policy: PolicyRun | undefined
  readonly streams: (link: StreamSlots) => StreamPool
  readonly request: () => DeviceRequest
  /** See `ForwardOptions`. */
  readonly isAlone: boolean
}

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
export class Exchange extends AnsweredExchange implements NameQuery {
  start(): void {
    this.search.start(this)
  }

  /** Visitors find public endpoints, and policies that ask internal ones. */
  find(): Route | undefined {
    const routes = this.#routes
    const { network } = this.client
    const { hostname } = this.request.head
    const { internal, scheme, peer } = this.client.listener
    if (peer?.handed) return routes.matchInternal(peer.handed.url, peer.handed.ownerId, network)
    return internal
      ? routes.matchInternal(new URL(`${scheme}://${hostname}`), internal.ownerId, network)
      : routes.match(hostname, scheme, network)
  }

  admits(found: Route): boolean {
    const { listener } = this.client
    const verdict = listener.peer?.handed ? 'serve' : admit(listener, found)
    const { hostname, target } = this.request.head
    if (verdict === 'refuse') this.fail('ERR_NGROK_3200', true)
    else if (verdict === 'misdirect') this.fail('ERR_GATEWAY_MISDIRECTED', true)
    else if (verdict === 'redirect') this.reply(redirectToHttps(found, hostname, target), true)
    return verdict === 'serve'
  }

  onFound(found: Endpoint | RemoteHome): void {
    if (found.type === 'remote') this.#crossFirst(found)
    else this.#enterFirst(found)
  }

  onNone(reason: 'nobody' | 'away'): void {
    if (reason === 'away') this.failOnDevice('ERR_GATEWAY_AWAY')
    else if (this.client.listener.peer) this.closeFor('not-mine')
    else this.fail('ERR_NGROK_3200', true)
  }

  onFailure(failure: ForwardFailure): void {
    const state = this.state
    if (state.name === 'forwarding' && failure === 'lost') {
      const { to, forward, policy } = state
      const { head, body } = this.request
      const { isSilent } = this.writer
      const lost = { wasSent: forward.wasSent, method: head.method, hasBody: !!body, isSilent }
      const next = to.type === 'remote' ? undefined : this.#successorOf(to, forward, policy)
      if (this.search.lost(lost, next)) {
        this.become({ name: 'searching', policy })
        return
      }
    }
    this.failOnDevice(FAILURE_CODES[failure])
  }

  onVerdict(verdict: PeerVerdict): void {
    const state = this.state
    if (state.name !== 'forwarding') return
    if (verdict === 'closed') {
      this.closeFor('policy')
      return
    }
    this.become({ name: 'searching', policy: state.policy })
    this.search.disowned()
  }

  protected failOnDevice(code: EdgeErrorCode): void {
    const state = this.state
    if ('policy' in state) state.policy?.upstreamEnded(undefined)
    this.fail(code, true)
  }

  /**
   * After `endpoint` was lost: goes to what has its name now, past a policy that has judged. Another
   * member of its pool has a policy of its own.
   */
  #successorOf(endpoint: AgentEndpoint, lost: Forward, policy: PolicyRun | undefined): NameQuery {
    return {
      find: () => this.#routes.successorOf(endpoint, this.client.network),
      onFound: (next) => {
        if (next.type === 'remote') this.#crossInstead(next, lost, policy)
        else this.#follow(next, endpoint, lost, policy)
      },
      onNone: (reason) => {
        if (reason === 'away') this.failOnDevice('ERR_GATEWAY_AWAY')
        else if (policy?.outer || !this.client.listener.peer) this.failOnDevice('ERR_NGROK_3210')
        else this.#leaveHere(lost, policy, () => this.closeFor('not-mine'))
      },
    }
  }

  #follow(
    next: Endpoint,
    endpoint: AgentEndpoint,
    lost: Forward,
    policy: PolicyRun | undefined,
  ): void {
    if (next === endpoint || next.protocol !== endpoint.protocol) {
      this.failOnDevice('ERR_NGROK_3210')
    } else if (!policy) {
      this.#enterFirst(next)
    } else if (next.poolMember !== endpoint.poolMember) {
      this.#enterInstead(next, lost, policy)
    } else if (next.type === 'agent') {
      this.enterEndpoint(next, false)
      this.#send(next, lost.request, policy)
    } else {
      this.failOnDevice('ERR_NGROK_3210')
    }
  }

  /** Sends the request to the endpoint that it is for, as it came. */
  #enterFirst(endpoint: Endpoint): void {
    const { head } = this.request
    const { listener, ip } = this.client
    const { peer, scheme } = listener
    if (peer && this.request.markAccepted()) this.client.write(ACCEPTED_HEAD)
    const fields = peer?.handed ? [...head.fields] : requestFields(head, ip, scheme)
    this.#enter(endpoint, head.target, fields, undefined)
  }

  /** Passes the request on, as it came, to the node where its endpoint is at home. */
  #crossFirst(home: RemoteHome): void {
    const { client, request } = this
    const { head } = request
    this.#cross(home, {
      policy: undefined,
      streams: (link) => client.hops.to(link, client.listener),
      request: () => request.toDevice(head.target, withVersion(head, peerFields(head))),
      isAlone: false,
    })
  }

  /** The same after an endpoint was lost here; the policy there is to judge, and count, by itself. */
  #crossInstead(home: RemoteHome, lost: Forward, policy: PolicyRun | undefined): void {
    if (policy?.outer) this.failOnDevice('ERR_NGROK_3210')
    else {
      this.#leaveHere(lost, policy, () => {
        this.become({ name: 'searching', policy: undefined })
        this.search.start(this, home)
      })
    }
  }

  /** What was lost here is served elsewhere, as it came. */
  #leaveHere(lost: Forward, policy: PolicyRun | undefined, goOn: () => void): void {
    if (lost.request.body !== this.request.body) {
      // Its body was read and changed on the way.
      this.failOnDevice('ERR_NGROK_3210')
      return
    }
    policy?.leave()
    this.traffic.leave()
    goOn()
  }

  /** Sends the request to another member of a pool, as it came to the one that was lost. */
  #enterInstead(endpoint: Endpoint, lost: Forward, policy: PolicyRun): void {
    if (lost.request.body !== this.request.body) {
      // Its body was read and changed on the way to the first.
      this.failOnDevice('ERR_NGROK_3210')
      return
    }
    policy.leave()
    const { outer } = policy
    if (!outer) this.#enterFirst(endpoint)
    else this.#enter(endpoint, outer.target, [...outer.fields], outer, true)
  }

  /** Whoever comes by another node is served here, or sent back: nobody is led in a circle. */
  get #routes(): Routes {
    const { peer, staysHere } = this.client.listener
    return peer || staysHere ? this.context.ownRoutes : this.context.routes
  }

  /** How many policies have asked each other to get here. */
  #askDepth(): number {
    const { internal, peer } = this.client.listener
    if (peer?.handed) return peer.handed.askDepth
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
    const handed = this.client.listener.peer?.handed
    if (!outer && !hasRules(endpoint)) {
      this.#deliver(endpoint, target, unjudgedFields(endpoint, fields, handed), undefined)
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
      handed,
    })
    this.become({ name: 'judging-request', policy })
    this.judge(policy.judgeRequest(), (outcome) => {
      if (outcome.kind === 'continue') {
        this.#deliver(endpoint, policy.target, policy.deviceFields, policy)
      } else if (outcome.kind === 'forward') {
        this.#handOn(outcome.url, policy, endpoint)
      } else if (outcome.kind === 'respond' && outcome.runsResponsePhase) {
        this.answer(outcome.reply, policy)
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
    if (endpoint.type === 'cloud') {
      this.fail('ERR_NGROK_6029', true)
    } else if (policy && this.#isPrepared(policy)) {
      this.#prepare(target, fields, policy, (it) => this.#forward(endpoint, it, policy))
    } else {
      this.#forward(endpoint, this.request.toDevice(target, fields), policy)
    }
  }

  /** Whether something is to be done to the body before it goes on. */
  #isPrepared({ requestTransforms }: PolicyRun): boolean {
    return requestTransforms.length > 0 && this.request.body !== undefined
  }

  /** Does to the body what the policy wants done to it, as a whole; without one it goes as it comes. */
  #prepare(
    target: string,
    fields: readonly string[],
    policy: PolicyRun,
    send: (request: DeviceRequest) => void,
  ): void {
    const { request } = this
    const { body } = request
    if (!body || !this.#isPrepared(policy)) {
      send(request.toDevice(target, fields))
      return
    }
    const onContent = (content: Buffer) => {
      if (this.state.name !== 'preparing') return
      send(request.toDeviceWhole(target, fields, content))
    }
    const onError = (error: Error) => this.onTransformError(error)
    const pipe = request.transform(body, policy.requestTransforms, onContent, onError)
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
    this.become({ name: 'forwarding', forward, policy, to: endpoint })
    forward.start()
  }

  /** Sends the request to an internal endpoint that `from` reaches; its policy runs in its turn. */
  #handOn(url: string, policy: PolicyRun, from: Endpoint): void {
    const { routes } = this.context
    const { network } = this.client
    const find = () => routes.matchInternal(new URL(url), from.ownerId, network)
    this.become({ name: 'searching', policy })
    this.search.start({
      find,
      onFound: (found) => {
        // A session at the one account is not the other's.
        const { fields, deviceFields } = policy
        const handed = found.ownerId === from.ownerId ? fields : deviceFields
        if (found.type === 'remote') this.#handOver(found, url, handed, policy, from, find)
        else this.#enter(found, policy.target, [...handed], policy)
      },
      onNone: (reason) => {
        if (reason === 'away') this.failOnDevice('ERR_GATEWAY_AWAY')
        else this.fail('ERR_NGROK_3200', true)
      },
    })
  }

  /** The same for an internal endpoint that is at home at another node. */
  #handOver(
    home: RemoteHome,
    url: string,
    fields: readonly string[],
    policy: PolicyRun,
    { ownerId }: Endpoint,
    find: NameQuery['find'],
  ): void {
    const { client, request } = this
    const internal = {
      url,
      owner_id: ownerId,
      ask_depth: this.#askDepth(),
      hops: policy.hops + 1,
      withholds_login: policy.withholdsLogin,
    }
    const sent = withVersion(request.head, fields)
    this.#prepare(policy.target, sent, policy, (prepared) => {
      const passage: Passage = {
        policy,
        streams: (link) => client.hops.handOn(link, client.listener, internal),
        request: () => prepared,
        isAlone: true,
      }
      this.become({ name: 'searching', policy })
      const query: NameQuery = {
        find,
        onFound: (found) => {
          if (found.type === 'remote') this.#cross(found, passage)
          else if (prepared.body !== request.body) this.failOnDevice('ERR_NGROK_3210')
          else this.#enter(found, policy.target, [...fields], policy)
        },
        onNone: (reason) =>
          this.failOnDevice(reason === 'away' ? 'ERR_GATEWAY_AWAY' : 'ERR_NGROK_3210'),
      }
      this.search.start(query, home)
    })
  }

  /** Sends the request to another node; it waits while that cannot be reached, or is not its home. */
  #cross(home: RemoteHome, { policy, streams, request, isAlone }: Passage): void {
    const link = this.search.reach(home)
    if (!link) return
    let pool: StreamPool
    try {
      pool = streams(link)
    } catch (error) {
      if (!(error instanceof CertificateTooLargeError)) throw error
      this.fail('ERR_GATEWAY_HEAD_TOO_LARGE', true, error.message)
      return
    }
    const { client } = this
    client.charge(link.buffers)
    const forward = new PeerForward({
      pool,
      client,
      request: request(),
      scanner: client.responseScanner,
      owner: this,
      isAlone,
    })
    this.become({ name: 'forwarding', forward, policy, to: home })
    forward.start()
  }
}

function hasRules({ policy }: Endpoint): boolean {
  return policy.hasConnectRules || policy.hasRequestRules || policy.hasResponseRules
}

/** What the SDK speaks to the service. */
function schemeOf({ forwardsTo }: AgentEndpoint): 'http' | 'https' {
  return forwardsTo.startsWith('https://') ? 'https' : 'http'
}
