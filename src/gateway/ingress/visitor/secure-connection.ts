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

/** Where a connection to the secure listener is. */
type SecureConnectionState =
  /** It has still to say whom it wants. */
  | { readonly name: 'greeting'; readonly hello: ClientHelloReader }
  /** `on_tcp_connect` of an endpoint says how TLS is to end; it may be agreed on meanwhile. */
  | { readonly name: 'judging'; readonly endpoint: Endpoint }
  /** TLS ends here, and is being agreed on. */
  | { readonly name: 'handshake' }
  /** What serves it has taken it over. */
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

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
function nextSecureConnectionState(
  state: SecureConnectionState,
  next: SecureConnectionState,
): SecureConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a connection cannot be ${next.name} after ${state.name}`)
}

/** In the order of preference (RFC 7301); without ALPN it is HTTP/1.1. */
const PROTOCOLS = ['h2', 'http/1.1', 'http/1.0']

export interface HandedConnection {
  /** Who has the internal endpoint. */
  readonly find: (network: string) => NameState | undefined
  /** How many endpoints have handed it on. */
  readonly hops: number
}

export interface SecureConnectionOptions {
  readonly socket: TransportSocket
  /** The certificate for a server name; undefined when the client named none. */
  readonly certificate: (serverName: string | undefined) => ServedCertificate
  readonly listener: IngressListener
  readonly context: IngressContext
  /** A policy at another node has handed it on. */
  readonly handed?: HandedConnection | undefined
  onClose(connection: SecureConnection): void
}

/**
 * A visitor's connection to the secure listener. First it says whom it wants, in the clear. To a TLS
 * endpoint it goes on as it is, to the device; for an HTTPS one TLS ends here, and what was agreed on
 * follows. A policy with `terminate-tls` is asked before that, and says how.
 */
export class SecureConnection implements IngressConnection {
  readonly #options: SecureConnectionOptions
  readonly #socket: TransportSocket
  #deadline: number
  readonly #openedAt: number
  #serverName: string | undefined
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
    // What went wrong with a visitor is the visitor's affair; `close` follows.
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

  /** A handshake that is under way goes on: the request comes right behind it. */
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
  /** Half-open connections are for those who have said something. */
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
      // Whoever goes on with it reads it from the start.
      const bytes = hello.take()
      this.#socket.unshift(bytes)
      if (verdict.kind === 'hello') this.#serverName = verdict.serverName
      this.#inTurn(() => this.#route(bytes.length))
      return
    }
  }

  /**
   * While its client is in debt, a new connection waits: it is no way around a rest. That of a proxy
   * does not: it may be for another client.
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

  #route(helloBytes: number): void {
    const found = this.#find()
    if (found?.type === 'remote' && (found.protocol === 'tls' || found.endsTls)) {
      this.#relay(helloBytes)
    } else if (found?.type === 'remote') this.#shakeHands()
    else if (found?.protocol === 'tls') this.#passOn(helloBytes)
    else if (found && found.type !== 'away' && endsTls(found)) this.#judge(found)
    else this.#shakeHands()
  }

  /** Who has the name here, or had it a moment ago. */
  #find(): Route | undefined {
    const name = this.#serverName
    const { context, listener, handed } = this.#options
    if (handed) return handed.find(this.#network)
    if (name === undefined) return undefined
    const routes = listener.staysHere ? context.ownRoutes : context.routes
    return routes.match(name, 'tls', this.#network)
  }

  /** The home is another node, and TLS is a matter of it, or of the device there. */
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
        // TLS that does not come about is over before anybody has heard of that.
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
    // Each request is handed on by itself, as where TLS ends without being asked for.
    const admitted = { facts, endpoint: kind === 'continue' ? endpoint : undefined }
    if (this.#handshake) this.#serve(this.#agree(this.#handshake, admitted))
    else this.#shakeHands(admitted)
  }

  #refuse({ traffic }: Endpoint): void {
    traffic.countRefusal(undefined)
    this.#drop()
  }

  /** For a policy: what comes of it decides about everything else. */
  #beginTls(terms: TlsTerms) {
    let settle: (isAgreed: boolean) => void = () => {}
    const agreed = new Promise<boolean>((resolve) => {
      settle = resolve
    })
    // It may have waited for its device until now.
    this.#deadline = this.#options.context.now + this.#options.context.limits.headMs
    const protocols = this.#state.name === 'judging' ? PROTOCOLS : undefined
    const handshake = this.#shake({ terms, protocols, onSettled: settle })
    return { secured: handshake.secured, agreed }
  }

  #shakeHands(admitted?: Admitted & { readonly facts: ConnectionFacts }): void {
    this.#become({ name: 'handshake' })
    const handshake = this.#shake({
      protocols: PROTOCOLS,
      // HTTP/2 wants its connection in the very turn in which TLS has come about.
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
      // Node says so of sockets that a server of its own accepts; HTTP/2 would wait for it for ever.
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

/** Whether a policy says how TLS ends: it is asked before that, not before the first request. */
function endsTls({ policy }: Endpoint): boolean {
  return policy.hasConnectRules && policy.has('on_tcp_connect', 'terminate-tls')
}
