import type { ConnectionStage } from '../../../base/net/connection-shares.ts'
import { networkOf } from '../../../base/net/network.ts'
import type { EndTls, MaybePromise, Outcome, TlsTerms } from '../../../policy/exchange/outcome.ts'
import type { ServedCertificate } from '../../certificates/certificate-file.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { NameState } from '../../endpoints/host-table.ts'
import type { Route } from '../../endpoints/routes.ts'
import type { TransportSocket } from '../common/client-socket.ts'
import { ConnectionFacts, plainAddress } from '../common/connection-facts.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import type { IngressListener } from '../common/ingress-listener.ts'
import { connectVerdict } from '../exchange/policy-run.ts'
import { ClientHelloReader } from './client-hello.ts'
import { ClientConnection } from './connection.ts'
import { Http2Connection } from './http2-connection.ts'
import { RelayedConnection } from './relayed-connection.ts'
import { TcpConnection } from './tcp-connection.ts'
import { Handshake } from './tls-handshake.ts'
import type { Admitted, IngressConnection } from './visitor.ts'

/** State of a connection to the secure listener. */
type SecureConnectionState =
  /** Waits for the ClientHello, which names the host. */
  | { readonly name: 'greeting'; readonly hello: ClientHelloReader }
  /** `on_tcp_connect` of an endpoint decides how TLS ends. The handshake may already run. */
  | { readonly name: 'judging'; readonly endpoint: Endpoint }
  /** TLS ends here, and the handshake runs. */
  | { readonly name: 'handshake' }
  /** Another connection object has taken over and serves it. */
  | { readonly name: 'served'; readonly connection: IngressConnection }
  | { readonly name: 'over' }

type Name = SecureConnectionState['name']

const NEXT: Record<Name, readonly Name[]> = {
  greeting: ['judging', 'handshake', 'served', 'over'],
  judging: ['handshake', 'served', 'over'],
  handshake: ['served', 'over'],
  served: ['over'],
  over: [],
}

/** Returns the next state. Throws if the transition is not allowed, which can only be a bug. */
function nextSecureConnectionState(
  state: SecureConnectionState,
  next: SecureConnectionState,
): SecureConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a connection cannot be ${next.name} after ${state.name}`)
}

/** In order of preference (RFC 7301). Without ALPN the protocol is HTTP/1.1. */
const PROTOCOLS = ['h2', 'http/1.1', 'http/1.0']
/** RFC 8737 section 6.2. */
const CHALLENGE_PROTOCOL = 'acme-tls/1'

export interface HandedConnection {
  /** Finds the internal endpoint. */
  readonly find: (network: string) => NameState | undefined
  /** Number of endpoints that forwarded it. */
  readonly hops: number
}

export interface SecureConnectionOptions {
  readonly socket: TransportSocket
  /** Returns the certificate for a server name; undefined if the client sent no name. */
  readonly certificate: (serverName: string | undefined) => ServedCertificate
  /** Issues the certificate of a known host. Undefined if the host has one. Never rejects. */
  readonly cover?: (route: Route) => Promise<void> | undefined
  readonly listener: IngressListener
  readonly context: IngressContext
  /** Set if a policy at another node forwarded it. */
  readonly handed?: HandedConnection | undefined
  onClose(connection: SecureConnection): void
}

/**
 * A visitor's connection to the secure listener. The client first names its host, unencrypted. The connection
 * to a TLS endpoint goes to the device unchanged. For an HTTPS endpoint TLS ends here, and the negotiated
 * protocol follows. A policy with `terminate-tls` runs before that and sets the terms.
 */
export class SecureConnection implements IngressConnection {
  readonly #options: SecureConnectionOptions
  readonly #socket: TransportSocket
  #deadline: number
  readonly #openedAt: number
  #serverName: string | undefined
  /** The client offers only `acme-tls/1`: an authority, which looks for an answer to a challenge. */
  #isChallenge = false
  #handshake: Handshake | undefined
  #state: SecureConnectionState
  #isStopping = false

  constructor(options: SecureConnectionOptions) {
    const { socket, context, onClose } = options
    this.#options = options
    this.#socket = socket
    this.#openedAt = context.now
    this.#deadline = context.now + context.limits.headMs
    this.#state = { name: 'greeting', hello: new ClientHelloReader() }
    // Visitor errors need no handling: `close` follows.
    socket.on('error', () => {})
    socket.on('close', () => {
      if (this.#state.name !== 'served') this.#become({ name: 'over' })
      onClose(this)
    })
    socket.on('readable', this.#onReadable)
    socket.on('end', this.#onEnd)
  }

  get stage(): ConnectionStage {
    return this.#state.name === 'served' ? this.#state.connection.stage : 'idle'
  }

  get idleSince(): number {
    return this.#state.name === 'served' ? this.#state.connection.idleSince : this.#openedAt
  }

  yieldPlace(): void {
    if (this.#state.name === 'served') this.#state.connection.yieldPlace()
    else this.#drop()
  }

  /** A handshake in progress continues, because a request follows it. */
  stop(): void {
    this.#isStopping = true
    if (this.#state.name === 'served') this.#state.connection.stop()
  }

  destroy(): void {
    if (this.#state.name === 'served') this.#state.connection.destroy()
    else this.#drop()
  }

  sweep(now: number): void {
    const isAgreed = this.#handshake?.isSettled ?? true
    if (this.#state.name === 'served' && isAgreed) this.#state.connection.sweep(now)
    else if (now > this.#deadline) this.#drop()
  }

  checkFlood(): void {
    if (this.#state.name === 'served') this.#state.connection.checkFlood()
  }

  readonly #onReadable = () => this.#guard(() => this.#readHello())
  /** A client that ends before its ClientHello is complete is dropped. */
  readonly #onEnd = () => this.#drop()

  #readHello(): void {
    if (this.#state.name !== 'greeting') return
    const { hello } = this.#state
    for (;;) {
      const chunk: Buffer | null = this.#socket.read()
      if (!chunk) return
      const verdict = hello.read(chunk)
      if (verdict.kind === 'partial') continue
      this.#socket.off('readable', this.#onReadable).off('end', this.#onEnd)
      if (verdict.kind === 'too-large') {
        this.#drop()
        return
      }
      // The next reader needs all bytes from the start.
      const bytes = hello.takeBytes()
      this.#socket.unshift(bytes)
      if (verdict.kind === 'hello') {
        const { serverName, protocols } = verdict
        this.#serverName = serverName
        this.#isChallenge = protocols.length === 1 && protocols[0] === CHALLENGE_PROTOCOL
      }
      this.#inTurn(() => this.#begin(bytes.length))
      return
    }
  }

  /**
   * Delays a new connection while its client is in debt: reconnecting does not avoid a pause. Connections of
   * a proxy are not delayed, because they may be for other clients.
   */
  #inTurn(step: () => void): void {
    const { pieceShares, proxies } = this.#options.context
    const network = this.#network
    if (!pieceShares.mustRest(network) || proxies?.trusts(this.#ip)) {
      step()
      return
    }
    const giveUp = pieceShares.rest(network, () => {
      if (!this.#socket.destroyed) this.#guard(step)
    })
    this.#socket.once('close', giveUp)
  }

  get #ip(): string {
    return plainAddress(this.#socket.remoteAddress ?? '')
  }

  get #network(): string {
    return networkOf(this.#ip)
  }

  /** Answers a challenge of an order that is under way. Others are visitors, and devices may know them. */
  #begin(helloBytes: number): void {
    const { context, listener, handed } = this.#options
    const isVisitor = !handed && !listener.peer && !listener.staysHere
    const name = this.#serverName
    if (!this.#isChallenge || !isVisitor || !context.challenges || name === undefined) {
      this.#route(helloBytes)
      return
    }
    // It settles within a few seconds, and never rejects.
    void context.challenges.tls(name).then((certificate) =>
      this.#guard(() => {
        if (this.#state.name !== 'greeting') return
        if (certificate) this.#answerChallenge(certificate)
        else this.#route(helloBytes)
      }),
    )
  }

  /** RFC 8737 section 3: the connection ends after the handshake. */
  #answerChallenge(certificate: ServedCertificate): void {
    this.#become({ name: 'handshake' })
    const handshake = new Handshake({
      socket: this.#socket,
      certificate,
      protocols: [CHALLENGE_PROTOCOL],
      onSettled: (isAgreed) => {
        if (isAgreed) handshake.secured.end()
      },
    })
    this.#handshake = handshake
  }

  /** Waits for the certificate of a name that is online anywhere, or was so before the gateway started. */
  #route(helloBytes: number): void {
    const found = this.#find()
    const covered = found && this.#cover(found)
    if (!covered) {
      this.#lead(found, helloBytes)
      return
    }
    void covered.then(() =>
      this.#guard(() => {
        if (this.#state.name === 'greeting') this.#lead(this.#find(), helloBytes)
      }),
    )
  }

  /** The host of the endpoint, and not the server name: visitors choose the names below a wildcard. */
  #cover(found: Route): Promise<void> | undefined {
    const { cover, handed } = this.#options
    const endsElsewhere = found.protocol === 'tls' || (found.type === 'remote' && found.endsTls)
    // While the names of other nodes are unknown, any name is `disconnected`, without a URL.
    const isInvented = found.type === 'disconnected' && found.url === ''
    if (handed || endsElsewhere || isInvented) return undefined
    return cover?.(found)
  }

  #lead(found: Route | undefined, helloBytes: number): void {
    if (found?.type === 'remote' && (found.protocol === 'tls' || found.endsTls)) {
      this.#relay(helloBytes)
    } else if (found?.type === 'remote') this.#shakeHands()
    else if (found?.protocol === 'tls') this.#passOn(helloBytes)
    else if (found && found.type !== 'disconnected' && endsTls(found)) this.#judge(found)
    else this.#shakeHands()
  }

  /** Finds the route of the server name, also of a device that disconnected a moment ago. */
  #find(): Route | undefined {
    const name = this.#serverName
    const { context, listener, handed } = this.#options
    if (handed) return handed.find(this.#network)
    if (name === undefined) return undefined
    const routes = listener.staysHere ? context.ownRoutes : context.routes
    return routes.match(name, 'tls', this.#network)
  }

  /** Relays to the serving node. TLS ends there, or at the device. */
  #relay(helloBytes: number): void {
    const { context } = this.#options
    const connection = new RelayedConnection({
      socket: this.#socket,
      entry: { kind: 'tls', server_name: this.#serverName ?? '' },
      context,
      waitingBytes: helloBytes + this.#socket.readableHighWaterMark,
      find: () => this.#find(),
      onClose: () => {},
    })
    this.#serve(connection)
    connection.start()
  }

  #passOn(helloBytes: number): void {
    const { context, handed } = this.#options
    const connection = new TcpConnection({
      socket: this.#socket,
      context,
      serverName: this.#serverName,
      ...(handed && { handed: { hops: handed.hops, tls: undefined } }),
      waitingBytes: helloBytes + this.#socket.readableHighWaterMark,
      find: () => {
        const found = this.#find()
        return found?.type !== 'remote' && found?.protocol === 'tls' ? found : undefined
      },
      endTls: (terms) => this.#beginTls(terms),
      onClose: () => {},
    })
    this.#serve(connection)
    connection.start()
  }

  #judge(endpoint: Endpoint): void {
    const state: SecureConnectionState = { name: 'judging', endpoint }
    this.#become(state)
    const { clock, addresses } = this.#options.context
    const facts = new ConnectionFacts(this.#socket, clock.now(), addresses, {
      serverName: this.#serverName,
    })
    const endTls: EndTls = async (terms) => {
      const { tls } = facts
      if (tls) return tls.terms === terms.id ? 'ended' : 'otherwise'
      const { secured, agreed } = this.#beginTls(terms)
      if (!(await agreed)) return 'failed'
      facts.secure(secured, terms)
      return 'ended'
    }
    const follow = (outcome: Outcome) =>
      this.#guard(() => {
        // If the handshake fails, the connection is over before the policy reports its outcome.
        if (isRefused(outcome)) this.#refuse(endpoint)
        else if (this.#state === state) this.#follow(outcome, endpoint, facts)
      })
    const outcome: MaybePromise<Outcome> = connectVerdict(endpoint, facts, { endTls })
    if (outcome instanceof Promise) {
      outcome.then(follow, (err) => {
        this.#options.context.log.error({ err, endpoint: endpoint.id }, 'policy failed')
        this.#drop()
      })
    } else {
      follow(outcome)
    }
  }

  #follow({ kind }: Outcome, endpoint: Endpoint, facts: ConnectionFacts): void {
    // With `forward`, each request is forwarded separately, as without `terminate-tls`.
    const admitted = { facts, endpoint: kind === 'continue' ? endpoint : undefined }
    if (this.#handshake) this.#serve(this.#agree(this.#handshake, admitted))
    else this.#shakeHands(admitted)
  }

  #refuse({ traffic }: Endpoint): void {
    traffic.countRefusal(undefined)
    this.#drop()
  }

  /** Begins TLS for a policy. The connection continues as its result requires. */
  #beginTls(terms: TlsTerms) {
    let settle: (isAgreed: boolean) => void = () => {}
    const agreed = new Promise<boolean>((resolve) => {
      settle = resolve
    })
    // The connection may have waited for its device until now.
    this.#deadline = this.#options.context.now + this.#options.context.limits.headMs
    const protocols = this.#state.name === 'judging' ? PROTOCOLS : undefined
    const handshake = this.#shake({ terms, protocols, onSettled: settle })
    return { secured: handshake.secured, agreed }
  }

  #shakeHands(admitted?: Admitted & { readonly facts: ConnectionFacts }): void {
    this.#become({ name: 'handshake' })
    const handshake = this.#shake({
      protocols: PROTOCOLS,
      // HTTP/2 needs the socket in the same turn in which the handshake completes.
      onSettled: (isAgreed) =>
        this.#guard(() => {
          if (!isAgreed || this.#state.name !== 'handshake') return
          admitted?.facts.secure(handshake.secured, undefined)
          this.#serve(this.#agree(handshake, admitted))
        }),
    })
  }

  #shake(options: Omit<ConstructorParameters<typeof Handshake>[0], 'socket' | 'certificate'>) {
    const certificate = this.#options.certificate(this.#serverName)
    this.#handshake = new Handshake({ ...options, socket: this.#socket, certificate })
    return this.#handshake
  }

  #agree({ secured: socket }: Handshake, admitted?: Admitted): IngressConnection {
    const { listener, context } = this.#options
    if (socket.alpnProtocol === 'h2') {
      // Node sets this only on sockets of its own servers. Without it, HTTP/2 would wait forever.
      Object.assign(socket, { secureConnecting: false })
      return new Http2Connection({ socket, listener, context, admitted })
    }
    const options = { socket, listener, context, admitted, onClose: () => {} }
    const connection = new ClientConnection(options)
    connection.open()
    return connection
  }

  #serve(connection: IngressConnection): void {
    this.#become({ name: 'served', connection })
    if (this.#isStopping) connection.stop()
  }

  #drop(): void {
    const { secured } = this.#handshake ?? {}
    ;(secured ?? this.#socket).destroy()
  }

  #become(next: SecureConnectionState): void {
    this.#state = nextSecureConnectionState(this.#state, next)
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (err) {
      this.#options.context.log.error({ err }, 'client connection failed')
      this.#drop()
    }
  }
}

const isRefused = ({ kind }: Outcome) => kind !== 'continue' && kind !== 'forward'

/**
 * Whether a policy sets how TLS ends. Such a policy runs before the handshake, not before the first request.
 */
function endsTls({ policy }: Endpoint): boolean {
  return policy.hasConnectRules && policy.has('on_tcp_connect', 'terminate-tls')
}
