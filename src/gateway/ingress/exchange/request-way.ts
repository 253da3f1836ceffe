import type { Reply } from '../../../policy/exchange/outcome.ts'
import type { AgentEndpoint, Endpoint } from '../../endpoints/endpoint.ts'
import type { RemoteEndpoint, Route, Routes } from '../../endpoints/routes.ts'
import type { StreamPool } from '../../streams/stream-pool.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import { type DeviceRequest, sizeOf } from '../common/incoming-request.ts'
import { admit, redirectToHttps } from '../common/ingress-listener.ts'
import {
  FAILURE_CODES,
  type Forward,
  type ForwardFailure,
  type PeerVerdict,
} from '../device/forward.ts'
import { requestFields } from '../device/forwarded-headers.ts'
import { Http1Forward } from '../device/http1-forward.ts'
import { Http2Forward } from '../device/http2-forward.ts'
import { ACCEPTED_HEAD, PeerForward, peerFields, withVersion } from '../device/peer-forward.ts'
import { CertificateTooLargeError } from '../device/peer-streams.ts'
import type { ExchangeCore } from './exchange-core.ts'
import type { NameQuery } from './name-search.ts'
import { PolicyRun, unjudgedFields } from './policy-run.ts'
import { type FailureOwner, ResponseWay, type StreamUser } from './response-way.ts'
import { acceptWebSocket } from './websocket-conversion.ts'

/** RFC 8555 section 8.3. */
const ANSWER_FIELDS = ['content-type', 'application/octet-stream']

/** How a request goes to another node. */
interface PeerRoute {
  /** Policy that judged the request here. */
  readonly policy: PolicyRun | undefined
  readonly streams: (link: StreamSlots) => StreamPool
  readonly request: () => DeviceRequest
  /** See `ForwardOptions`. */
  readonly isAlone: boolean
}

/** The way of a request to its endpoint: searches that, asks policies, and sends it to the device. */
export class RequestWay implements NameQuery, FailureOwner {
  readonly #core: ExchangeCore
  readonly #back: ResponseWay

  constructor(core: ExchangeCore, user: StreamUser) {
    this.#core = core
    this.#back = new ResponseWay(core, user, this)
  }

  start(): void {
    const { client, context, request } = this.#core
    const { listener } = client
    const isVisitor = listener.scheme === 'http' && !listener.peer && !listener.internal
    const answer = isVisitor ? context.challenges?.http(request.head) : undefined
    if (!(answer instanceof Promise)) {
      this.#begin(answer)
      return
    }
    // It settles within a few seconds, and never rejects.
    void answer.then((late) =>
      client.guard(() => {
        if (this.#core.state.name === 'searching') this.#begin(late)
      }),
    )
  }

  /** `answer`: the answer to a challenge, instead of that of an endpoint. */
  #begin(answer: string | undefined): void {
    if (answer === undefined) this.#core.search.start(this)
    else this.#core.reply({ status: 200, fields: ANSWER_FIELDS, body: answer }, true)
  }

  /** Visitors find public endpoints; policies find internal ones. */
  find(): Route | undefined {
    const routes = this.#routes
    const { network } = this.#core.client
    const { hostname } = this.#core.request.head
    const { internal, scheme, peer } = this.#core.client.listener
    if (peer?.handed) return routes.matchInternal(peer.handed.url, peer.handed.ownerId, network)
    return internal
      ? routes.matchInternal(new URL(`${scheme}://${hostname}`), internal.ownerId, network)
      : routes.match(hostname, scheme, network)
  }

  admits(found: Route): boolean {
    const { listener } = this.#core.client
    const verdict = listener.peer?.handed ? 'serve' : admit(listener, found)
    const { hostname, target } = this.#core.request.head
    if (verdict === 'refuse') this.#core.fail('ERR_NGROK_3200', true)
    else if (verdict === 'misdirect') this.#core.fail('ERR_GATEWAY_MISDIRECTED', true)
    else if (verdict === 'redirect')
      this.#core.reply(redirectToHttps(found, hostname, target), true)
    return verdict === 'serve'
  }

  onFound(found: Endpoint | RemoteEndpoint): void {
    if (found.type === 'remote') this.#crossFirst(found)
    else this.#enterFirst(found)
  }

  onNone(reason: 'nobody' | 'away'): void {
    if (reason === 'away') this.#core.failOnDevice('ERR_GATEWAY_AWAY')
    else if (this.#core.client.listener.peer) this.#core.closeFor('not-mine')
    else this.#core.fail('ERR_NGROK_3200', true)
  }

  onFailure(failure: ForwardFailure): void {
    const state = this.#core.state
    if (state.name === 'forwarding' && failure === 'lost') {
      const { to, forward, policy } = state
      const { head, body } = this.#core.request
      const { isSilent } = this.#core.writer
      const lost = { wasSent: forward.wasSent, method: head.method, hasBody: !!body, isSilent }
      const next = to.type === 'remote' ? undefined : this.#successorOf(to, forward, policy)
      if (this.#core.search.lost(lost, next)) {
        this.#core.become({ name: 'searching', policy })
        return
      }
    }
    this.#core.failOnDevice(FAILURE_CODES[failure])
  }

  onVerdict(verdict: PeerVerdict): void {
    const state = this.#core.state
    if (state.name !== 'forwarding') return
    if (verdict === 'closed') {
      this.#core.closeFor('policy')
      return
    }
    this.#core.become({ name: 'searching', policy: state.policy })
    this.#core.search.disowned()
  }

  /**
   * After the loss of `endpoint`: searches the new holder of its name. The policy has already judged, except
   * that another member of a pool has its own policy.
   */
  #successorOf(endpoint: AgentEndpoint, lost: Forward, policy: PolicyRun | undefined): NameQuery {
    return {
      find: () => this.#routes.successorOf(endpoint, this.#core.client.network),
      onFound: (next) => {
        if (next.type === 'remote') this.#crossInstead(next, lost, policy)
        else this.#follow(next, endpoint, lost, policy)
      },
      onNone: (reason) => {
        const isToGoBack = !policy?.outer && this.#core.client.listener.peer !== undefined
        if (reason === 'away') this.#core.failOnDevice('ERR_GATEWAY_AWAY')
        else if (!isToGoBack) this.#core.failOnDevice('ERR_NGROK_3210')
        else if (this.#detach(lost, policy)) {
          this.#core.traffic.cancel()
          this.#core.closeFor('not-mine')
        }
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
      this.#core.failOnDevice('ERR_NGROK_3210')
    } else if (!policy) {
      this.#enterFirst(next)
    } else if (next.poolMember !== endpoint.poolMember) {
      this.#enterInstead(next, lost, policy)
    } else if (next.type === 'agent') {
      this.#core.enterEndpoint(next, false)
      this.#send(next, lost.request, policy)
    } else {
      this.#core.failOnDevice('ERR_NGROK_3210')
    }
  }

  /** Sends the request to the endpoint that it is for, as it came. */
  #enterFirst(endpoint: Endpoint): void {
    const { head } = this.#core.request
    const { listener, ip } = this.#core.client
    const { peer, scheme } = listener
    if (peer && this.#core.request.markAccepted()) this.#core.client.write(ACCEPTED_HEAD)
    const fields = peer?.handed ? head.fields : requestFields(head, ip, scheme)
    this.#enter(endpoint, head.target, fields, undefined)
  }

  /** Passes the request on, as it came, to the node where its endpoint is at home. */
  #crossFirst(home: RemoteEndpoint): void {
    const { client, request } = this.#core
    const { head } = request
    this.#cross(home, {
      policy: undefined,
      streams: (link) => client.hops.to(link, client.listener),
      request: () => request.toDevice(head.target, withVersion(head, peerFields(head))),
      isAlone: false,
    })
  }

  /** The same after an endpoint was lost here; the policy there is to judge, and count, by itself. */
  #crossInstead(home: RemoteEndpoint, lost: Forward, policy: PolicyRun | undefined): void {
    if (policy?.outer) this.#core.failOnDevice('ERR_NGROK_3210')
    else if (this.#detach(lost, policy)) {
      this.#core.traffic.cancel()
      this.#core.become({ name: 'searching', policy: undefined })
      this.#core.search.start(this, home)
    }
  }

  /** Sends the original request to another member of a pool. */
  #enterInstead(endpoint: Endpoint, lost: Forward, policy: PolicyRun): void {
    if (!this.#detach(lost, policy)) return
    const { outer } = policy
    if (!outer) this.#enterFirst(endpoint)
    else this.#enter(endpoint, outer.target, outer.fields, outer, true)
  }

  /** Leaves the lost endpoint. False if the body was read and changed. */
  #detach(lost: Forward, policy: PolicyRun | undefined): boolean {
    if (lost.request.body !== this.#core.request.body) {
      this.#core.failOnDevice('ERR_NGROK_3210')
      return false
    }
    policy?.endUpstream()
    return true
  }

  /** A request from another node is served here or returned, so there are no circles. */
  get #routes(): Routes {
    const { peer, staysHere } = this.#core.client.listener
    return peer || staysHere ? this.#core.context.ownRoutes : this.#core.context.routes
  }

  /** How many policies have asked each other to get here. */
  #askDepth(): number {
    const { internal, peer } = this.#core.client.listener
    if (peer?.handed) return peer.handed.askDepth
    return internal
      ? internal.asker.depth
      : this.#core.context.askSeal.depthOf(this.#core.request.head.fields)
  }

  /** Sends the request to an endpoint, past its policy if it has one, or one was met before. */
  #enter(
    endpoint: Endpoint,
    target: string,
    fields: readonly string[],
    outer: PolicyRun | undefined,
    isInstead = false,
  ): void {
    this.#core.enterEndpoint(endpoint, outer !== undefined && !isInstead)
    const handed = this.#core.client.listener.peer?.handed
    if (!outer && !hasRules(endpoint)) {
      this.#deliver(endpoint, target, unjudgedFields(endpoint, fields, handed), undefined)
      return
    }
    const receivedAt = outer?.receivedAt ?? this.#core.context.clock.now()
    const request = this.#core.request
    const policy = new PolicyRun({
      endpoint,
      client: this.#core.client,
      head: request.head,
      target,
      fields,
      receivedAt,
      bodyReceivedAt: () => (request.body ? request.body.receivedAt : receivedAt),
      readBody: (maxBytes) => this.#readBody(maxBytes),
      askDepth: () => this.#askDepth(),
      account: this.#core.client.listener.internal?.asker.account,
      outer,
      handed,
    })
    this.#core.become({ name: 'judging-request', policy })
    this.#core.judge(policy.judgeRequest(), (outcome) => {
      if (outcome.kind === 'continue') {
        this.#deliver(endpoint, policy.target, policy.deviceFields, policy)
      } else if (outcome.kind === 'forward') {
        this.#handOn(outcome.url, policy, endpoint)
      } else if (outcome.kind === 'respond' && outcome.runsResponsePhase) {
        this.#answer(outcome.reply, policy)
      } else {
        this.#core.followEnd(outcome)
      }
    })
  }

  /** Sends the response of a policy through its response phase. */
  #answer(reply: Reply, policy: PolicyRun): void {
    const { status, headers, body, errorCode } = reply
    this.#core.giveUp()
    this.#core.traffic.refuse(errorCode)
    if (!policy.hasResponseRules) {
      this.#core.reply({ status, fields: headers, body }, true)
      return
    }
    this.#core.become({ name: 'judging-reply', policy })
    this.#core.judge(policy.judgeResponse(status, headers), (outcome) => {
      const { response, responseTransforms: transforms } = policy
      if (outcome.kind !== 'continue') {
        this.#core.followEnd(outcome)
      } else if (transforms.length === 0) {
        this.#core.reply({ ...response, body }, true)
      } else {
        const content = Buffer.from(body)
        const framing = content.length
        this.#core.respond({ ...response, reason: undefined, framing, transforms }, undefined, true)
        this.#core.writer.write(content, false)
        this.#core.writer.finish()
      }
    })
  }

  /** A policy may look into a request that waits for it, and no longer. */
  #readBody(maxBytes: number): Promise<Buffer | undefined> {
    const { name } = this.#core.state
    return name === 'judging-request' || name === 'judging-response'
      ? this.#core.request.readBody(maxBytes)
      : Promise.resolve(undefined)
  }

  /** Sends the request to the device. A cloud endpoint has none. */
  #deliver(
    endpoint: Endpoint,
    target: string,
    fields: readonly string[],
    policy: PolicyRun | undefined,
  ): void {
    if (endpoint.type === 'cloud') {
      this.#core.fail('ERR_NGROK_6029', true)
    } else if (policy && this.#isPrepared(policy)) {
      this.#prepare(target, fields, policy, (it) => this.#forward(endpoint, it, policy))
    } else {
      this.#forward(endpoint, this.#core.request.toDevice(target, fields), policy)
    }
  }

  /** Whether something is to be done to the body before it goes on. */
  #isPrepared({ requestTransforms }: PolicyRun): boolean {
    return requestTransforms.length > 0 && this.#core.request.body !== undefined
  }

  /** Changes the complete body as the policy requires; without changes, the body is streamed. */
  #prepare(
    target: string,
    fields: readonly string[],
    policy: PolicyRun,
    send: (request: DeviceRequest) => void,
  ): void {
    const { request } = this.#core
    const { body } = request
    if (!body || !this.#isPrepared(policy)) {
      send(request.toDevice(target, fields))
      return
    }
    const onContent = (content: Buffer) => {
      if (this.#core.state.name !== 'preparing') return
      send(request.toDeviceWhole(target, fields, content))
    }
    const onError = (error: Error) => this.#core.onTransformError(error)
    const pipe = request.transform(body, policy.requestTransforms, onContent, onError)
    this.#core.become({ name: 'preparing', policy, pipe })
  }

  #forward(endpoint: AgentEndpoint, request: DeviceRequest, policy: PolicyRun | undefined): void {
    this.#core.traffic.receive(sizeOf(request))
    this.#send(endpoint, request, policy)
  }

  #send(endpoint: AgentEndpoint, request: DeviceRequest, policy: PolicyRun | undefined): void {
    const { context } = this.#core
    const { head } = this.#core.request
    const accepted = endpoint.isBehindWebSocket ? acceptWebSocket(head) : undefined
    if (accepted === null) {
      this.#core.fail('ERR_NGROK_3206', true)
      return
    }
    const speaksHttp2 = endpoint.appProtocol === 'http2'
    // An upgrade is a matter of HTTP/1.1: it goes as that, to a service that speaks both.
    const isHttp2 = speaksHttp2 && head.upgrade === undefined
    const options = {
      pool: endpoint.streams,
      client: this.#core.client,
      request,
      accepted,
      scanner: this.#core.client.responseScanner,
      owner: this.#back,
      isAlone: speaksHttp2 && !isHttp2,
    }
    const forward = isHttp2
      ? new Http2Forward({
          ...options,
          client: this.#core.client,
          scheme: schemeOf(endpoint),
          context,
        })
      : new Http1Forward(options)
    this.#core.become({ name: 'forwarding', forward, policy, to: endpoint })
    forward.start()
  }

  /** Sends the request to an internal endpoint that `from` reaches; its policy runs in its turn. */
  #handOn(url: string, policy: PolicyRun, from: Endpoint): void {
    const { routes } = this.#core.context
    const { network } = this.#core.client
    const find = () => routes.matchInternal(new URL(url), from.ownerId, network)
    this.#core.become({ name: 'searching', policy })
    this.#core.search.start({
      find,
      onFound: (found) => {
        // A sign-in session of one account is not passed to another.
        const { fields, deviceFields } = policy
        const handed = found.ownerId === from.ownerId ? fields : deviceFields
        if (found.type === 'remote') this.#handOver(found, url, handed, policy, from, find)
        else this.#enter(found, policy.target, [...handed], policy)
      },
      onNone: (reason) => {
        if (reason === 'away') this.#core.failOnDevice('ERR_GATEWAY_AWAY')
        else this.#core.fail('ERR_NGROK_3200', true)
      },
    })
  }

  /** The same for an internal endpoint that is at home at another node. */
  #handOver(
    home: RemoteEndpoint,
    url: string,
    fields: readonly string[],
    policy: PolicyRun,
    { ownerId }: Endpoint,
    find: NameQuery['find'],
  ): void {
    const { client, request } = this.#core
    const internal = {
      url,
      owner_id: ownerId,
      ask_depth: this.#askDepth(),
      hops: policy.hops + 1,
      withholds_login: policy.withholdsLogin,
    }
    const sent = withVersion(request.head, fields)
    this.#prepare(policy.target, sent, policy, (prepared) => {
      const passage: PeerRoute = {
        policy,
        streams: (link) => client.hops.handOn(link, client.listener, internal),
        request: () => prepared,
        isAlone: true,
      }
      this.#core.become({ name: 'searching', policy })
      const query: NameQuery = {
        find,
        onFound: (found) => {
          if (found.type === 'remote') this.#cross(found, passage)
          else if (prepared.body !== request.body) this.#core.failOnDevice('ERR_NGROK_3210')
          else this.#enter(found, policy.target, [...fields], policy)
        },
        onNone: (reason) =>
          this.#core.failOnDevice(reason === 'away' ? 'ERR_GATEWAY_AWAY' : 'ERR_NGROK_3210'),
      }
      this.#core.search.start(query, home)
    })
  }

  /** Sends the request to another node; it waits while that cannot be reached, or is not its home. */
  #cross(home: RemoteEndpoint, { policy, streams, request, isAlone }: PeerRoute): void {
    const link = this.#core.search.reach(home)
    if (!link) return
    let pool: StreamPool
    try {
      pool = streams(link)
    } catch (error) {
      if (!(error instanceof CertificateTooLargeError)) throw error
      this.#core.fail('ERR_GATEWAY_HEAD_TOO_LARGE', true, error.message)
      return
    }
    const { client } = this.#core
    client.charge(link.buffers)
    const forward = new PeerForward({
      pool,
      client,
      request: request(),
      scanner: client.responseScanner,
      owner: this.#back,
      isAlone,
    })
    this.#core.become({ name: 'forwarding', forward, policy, to: home })
    forward.start()
  }
}

function hasRules({ policy }: Endpoint): boolean {
  return policy.hasConnectRules || policy.hasRequestRules || policy.hasResponseRules
}

/** Protocol between the SDK and the service. */
function schemeOf({ forwardsTo }: AgentEndpoint): 'http' | 'https' {
  return forwardsTo.startsWith('https://') ? 'https' : 'http'
}
