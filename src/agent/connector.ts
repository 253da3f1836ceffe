import type { ProxyProtocol } from '../base/net/proxy-protocol.ts'
import type { Secret } from '../base/secret.ts'
import type { Problem } from './problem.ts'
import type { TunnelProtocol } from './upstreams/forward-target.ts'

/** Interface to the SDK: sessions and their endpoints. All calls have a time limit. */
export interface Connector {
  /** Version of the SDK, for display. */
  readonly sdkVersion: string
  /** Throws ProblemError, or PoisonedError if no later call can succeed. */
  connect(request: ConnectRequest): Promise<Session>
}

/**
 * Check before a connect. `brief`: without a TLS handshake, for a server whose certificate was valid at the
 * latest connect.
 */
export type PreflightScope = 'whole' | 'brief'

export interface ConnectRequest {
  readonly authtoken: Secret
  /** `host:port`. Undefined: the hosted service. */
  readonly serverAddr: string | undefined
  /** PEM text. Undefined: the certificates trusted by the SDK. */
  readonly caCert: string | undefined
  /** JSON text that the service stores with the session. */
  readonly metadata: string
  /** Duration of the preflight. On a slow link, a connect may take longer. */
  readonly preflightMs?: number
  /** The session is lost permanently. Called at most once, and not after `close()`. */
  readonly onLost: (problem: Problem) => void
  readonly onHeartbeat: (latencyMs: number) => void
  /**
   * Must carry out the command, because the service is told so. Must not throw. May be called while the
   * session is being closed.
   */
  readonly onCommand: (command: ServiceCommand) => void
  /** The service refused another process with the same identity, at address `ip`. Must not throw. */
  readonly onDuplicate: (ip: string) => void
  /** Our gateway tells its id, because this agent has several sessions there. Must not throw. */
  readonly onGateway?: (gateway: string) => void
  /** Message of the service that is not a command, such as a report about visitors. Must not throw. */
  readonly onNotice?: (text: string) => void
}

/** Commands of the service for a session: reconnect, or end permanently. */
export type ServiceCommand = 'restart' | 'stop'

export interface Session {
  /** False if the session is lost or closed. */
  readonly isAlive: boolean
  /** Throws ProblemError. */
  open(request: EndpointRequest): Promise<Listener>
  /**
   * Asks the service to hold the names of this session. Waits at most `withinMs` until requests in progress
   * have ended. The endpoints then stay at the service after the session is closed. Returns false if the
   * service does not support this. Never throws.
   */
  drain(withinMs: number): Promise<boolean>
  /**
   * Reports that all wanted endpoints are open, as far as possible. Other names of this device will not
   * return. Sends nothing to services that do not support this. Never throws.
   */
  complete(): Promise<void>
  /**
   * Asks the service for the traffic of the endpoints. Undefined if it does not answer, or does not support this.
   * Never throws.
   */
  traffic(): Promise<readonly EndpointTraffic[] | undefined>
  /** Another session serves now. The service ends this one when it has no requests in progress. */
  retire(): void
  /** Closes the session and its endpoints. Never throws. */
  close(): Promise<void>
}

export interface EndpointRequest {
  /** Protocol of the visitors. Default: HTTP. */
  readonly protocol?: TunnelProtocol
  /** For `tcp`: `host:port`. Empty: the service chooses a name or an address. */
  readonly domain: string
  /** Target that the SDK dials: `http://host:port`, `tcp://host:port` for `tcp`, or `unix:/absolute/path`. */
  readonly dialUrl: string
  /** Whether the target speaks HTTP/2 with prior knowledge. Default: HTTP/1.1. */
  readonly http2?: boolean | undefined
  /** Target as shown to people by the service. */
  readonly forwardsTo: string
  /** Whether other agents of the account may serve the address too. */
  readonly isPooled?: boolean
  /** Policy document, JSON text. */
  readonly policy: string | undefined
  /** Text that the service stores with the endpoint. */
  readonly metadata?: string | undefined
  /** Version of the PROXY header that tells the target about the visitor. */
  readonly proxyProtocol?: ProxyProtocol | undefined
  /** The service closed only this endpoint. Not called after `close()` or if the session is lost. */
  readonly onDropped: (problem: Problem) => void
}

/** Traffic of an endpoint since it opened at our gateway. */
export interface EndpointTraffic {
  /** As in the spec of the tunnel. */
  readonly domain: string
  readonly requests: number
  /** Requests that failed because of the service. */
  readonly errors: number
  readonly bytesIn: number
  readonly bytesOut: number
}

export interface Listener {
  readonly url: string
  /** Closes the endpoint at the service. Never throws. */
  close(): Promise<void>
}

/** The SDK hangs, and so would every later call. Only a new process helps. */
export class PoisonedError extends Error {
  override readonly name = 'PoisonedError'
}
