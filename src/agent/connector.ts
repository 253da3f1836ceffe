import type { ProxyProtocol } from '../base/net/proxy-protocol.ts'
import type { Secret } from '../base/secret.ts'
import type { Problem } from './problem.ts'
import type { TunnelProtocol } from './upstreams/forward-target.ts'

/** The port to the SDK: sessions, endpoints on them, every promise bounded in time. */
export interface Connector {
  /** Version of the SDK, for people. */
  readonly sdkVersion: string
  /** Throws ProblemError, or PoisonedError when no later call can work either. */
  connect(request: ConnectRequest): Promise<Session>
}

export interface ConnectRequest {
  readonly authtoken: Secret
  /** `host:port`; undefined is the hosted service. */
  readonly serverAddr: string | undefined
  /** PEM text; undefined trusts what the SDK trusts. */
  readonly caCert: string | undefined
  /** JSON text that the service keeps beside the session. */
  readonly metadata: string
  /** How long it took to see that the service can be reached: a connect may take longer on a slow link. */
  readonly preflightMs?: number
  /** The session is of no use any more, for good. Called at most once, and not after `close()`. */
  readonly onLost: (problem: Problem) => void
  readonly onHeartbeat: (latencyMs: number) => void
  /**
   * The service is told that this is obeyed, so it has to be. Must not throw; may still come while
   * the session is being closed.
   */
  readonly onCommand: (command: ServiceCommand) => void
  /** Another process with the same identity was refused; `ip` is where it is. Must not throw. */
  readonly onDuplicate: (ip: string) => void
  /** A text of the service that is no command, such as what visitors got. Must not throw. */
  readonly onNotice?: (text: string) => void
}

/** What the service may ask of a session: to be built anew, or to be ended for good. */
export type ServiceCommand = 'restart' | 'stop'

export interface Session {
  /** False once it is of no use any more: lost, or closed. */
  readonly isAlive: boolean
  /** Throws ProblemError. */
  open(request: EndpointRequest): Promise<Listener>
  /**
   * Asks the service to hold the names of this session, and waits until what is under way has ended,
   * at most `withinMs`. Answers false where the service does not know that. Never throws. What is
   * open stays with the service when the session is closed then.
   */
  drain(withinMs: number): Promise<boolean>
  /**
   * Tells the service that all is open that is wanted here, as far as it can be: what this device had
   * besides is not coming back. Never throws; a service that does not know that is told nothing.
   */
  complete(): Promise<void>
  /** Another session serves: the service ends this one when nothing is under way on it. */
  retire(): void
  /** Closes what is open, never throws. */
  close(): Promise<void>
}

export interface EndpointRequest {
  /** What visitors speak; HTTP unless given. */
  readonly protocol?: TunnelProtocol
  /** Of `tcp` `host:port`; empty: the service chooses. */
  readonly domain: string
  /** What the SDK dials: `http://host:port`, of `tcp` `tcp://host:port`, or `unix:/absolute/path`. */
  readonly dialUrl: string
  /** What is dialled speaks HTTP/2 by prior knowledge; else HTTP/1.1. */
  readonly http2?: boolean | undefined
  /** What the service shows people. */
  readonly forwardsTo: string
  /** Others of the account may serve the address, too. */
  readonly isPooled?: boolean
  /** Policy document, JSON text. */
  readonly policy: string | undefined
  /** What the service keeps beside the endpoint. */
  readonly metadata?: string | undefined
  /** The service is to tell what is dialled whose connection it is, by a header of this version. */
  readonly proxyProtocol?: ProxyProtocol | undefined
  /** The service closed this endpoint alone. Not called after `close()` or when the session is lost. */
  readonly onDropped: (problem: Problem) => void
}

export interface Listener {
  readonly url: string
  /** Closes the endpoint at the service, never throws. */
  close(): Promise<void>
}

/** The SDK hangs and would hang every later call: only a new process helps. */
export class PoisonedError extends Error {
  override readonly name = 'PoisonedError'
}
