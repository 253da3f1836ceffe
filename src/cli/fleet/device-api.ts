import { request } from 'node:https'
import type { LookupFunction } from 'node:net'
import type { SecureContext } from 'node:tls'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { abortedAfter } from '../../base/deadline.ts'
import { formatListenAddress, type ListenAddress } from '../../base/listen-address.ts'
import { exchange, type ReadAnswer } from '../../base/net/node-http.ts'
import {
  AgentClient,
  type AgentRequest,
  type AgentResponse,
  errorLines,
  type Transport,
  type TransportRequest,
} from '../agent-client.ts'
import type { ListedDevice } from '../provision/device-list.ts'
import type { WantedTunnel } from './fleet-file.ts'

/** A device waits up to 15 s for its service, and a list may be long. */
const TIMEOUT_MS = 60_000
const MAX_ANSWER_BYTES = 32 * 1024 * 1024

/** The way there, or the device, is busy, full or about to end. */
const BUSY_STATUSES = new Set([408, 425, 429, 502, 503, 504])
/** The connection broke off: a request may have arrived or not. */
const BROKEN_OFF = new Set(['ECONNRESET', 'EPIPE'])

/** Reasons of failed connections, by error code of the system. */
const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'unknown host name',
  EAI_AGAIN: 'no DNS server responds',
  ETIMEDOUT: 'no answer',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no network',
}

// Only the fields that are used: devices may have other versions.
const Step = z.object({
  action: z.enum(['create', 'replace', 'keep', 'delete']),
  domain: z.string(),
  changes: z.record(z.string(), z.unknown()),
  url: z.string().nullable(),
  state: z.string().nullable(),
  last_error: z.string().nullable().default(null),
  remedy: z.string().nullable().default(null),
})
const TunnelSet = z.object({ etag: z.string(), tunnels: z.array(Step) })
const Status = z.object({ healthy: z.boolean(), verdict: z.string() })
/** A planned or applied change of a tunnel. */
export type TunnelStep = z.infer<typeof Step>
/** Response to a whole set of tunnels. */
export type TunnelSetAnswer = z.infer<typeof TunnelSet>

/** The service answered for the device, or nothing answered. The device may come back at any time. */
export class OfflineError extends Error {}
/** It is there, or almost: the same request may go through in a moment. */
export class BusyError extends OfflineError {
  /** As it asks for; undefined: it says nothing. */
  readonly retryAfterS: number | undefined

  constructor(message: string, retryAfterS?: number, options?: ErrorOptions) {
    super(message, options)
    this.retryAfterS = retryAfterS
  }
}
/** The tunnels were changed after the plan was made. */
export class OvertakenError extends Error {}

export interface DeviceApiOptions {
  readonly device: ListedDevice
  /** Address to connect to; undefined: port 443 of the domain. */
  readonly address: ListenAddress | undefined
  /** Undefined: the public CAs. */
  readonly trust: SecureContext | undefined
  readonly stop: AbortSignal
  /** Limit of a whole exchange; default 60 s. */
  readonly timeoutMs?: number
}

/**
 * The API of one device, at its domain and with its token. Throws OfflineError, OvertakenError, or a
 * StartError with a remedy.
 */
export class DeviceApi {
  readonly #client: AgentClient

  constructor(options: DeviceApiOptions) {
    this.#client = new AgentClient(new DomainTransport(options))
  }

  plan(wanted: readonly WantedTunnel[]): Promise<TunnelSetAnswer> {
    const request: AgentRequest = { method: 'PUT', path: '/tunnels?dry_run=true', body: wanted }
    return this.#client.ask(request, TunnelSet)
  }

  /** Only while they are as the plan with this ETag has found them. */
  replace(wanted: readonly WantedTunnel[], etag: string): Promise<TunnelSetAnswer> {
    const headers = { 'if-match': etag }
    return this.#client.ask({ method: 'PUT', path: '/tunnels', body: wanted, headers }, TunnelSet)
  }

  status(): Promise<z.infer<typeof Status>> {
    return this.#client.ask({ path: '/status' }, Status)
  }

  /** Ends the token of the list; a token that does not exist has ended. */
  async revokeToken(): Promise<void> {
    const response = await this.#client.send({ method: 'DELETE', path: '/tokens/provisioned' })
    const isGone = response.status === 404 && serviceCodeOf(response) === undefined
    if (!isGone) this.#client.read(response, z.unknown())
  }
}

/** HTTPS to the domain of an agent, with the token of the list. */
class DomainTransport implements Transport {
  readonly #options: DeviceApiOptions
  readonly unknownFormat = 'The response has an unknown format. The agent has another version.'

  constructor(options: DeviceApiOptions) {
    this.#options = options
  }

  exchange({ method, path, headers, content }: TransportRequest): Promise<ReadAnswer> {
    const { device, address, trust, stop, timeoutMs = TIMEOUT_MS } = this.#options
    const { agentDomain, apiToken } = device
    return abortedAfter(timeoutMs, stop, (signal) => {
      const sent = request({
        method,
        path,
        signal,
        agent: false,
        host: address?.host ?? agentDomain,
        port: address?.port ?? 443,
        ...(!address && agentDomain.endsWith('.localhost') && { lookup: loopback }),
        ...(trust && { secureContext: trust }),
        headers: {
          // The certificate has to be for this name, too.
          host: agentDomain,
          connection: 'close',
          authorization: `Bearer ${apiToken.reveal()}`,
          ...headers,
        },
      })
      return exchange(sent, content, MAX_ANSWER_BYTES)
    })
  }

  refusal(response: AgentResponse): Error {
    const { status, problem } = response
    const serviceCode = serviceCodeOf(response)
    if (serviceCode !== undefined && !problem) {
      return new OfflineError(`not connected to the service (${status} ${serviceCode})`)
    }
    if (status === 412) return new OvertakenError()
    if (status === 401 || status === 403) {
      const why = problem?.detail ?? `status ${status}`
      return new StartError(
        `The device rejects the API token of the list: ${why} Replace the token with provision --rotate.`,
      )
    }
    if (status === 404 || status === 405) {
      return new StartError(
        'PUT /tunnels is not supported. The agent is too old, or another service answers.',
      )
    }
    // Another try would only keep it closed.
    const isLockedOut = status === 429 && /wrong tokens/i.test(problem?.detail ?? '')
    if (BUSY_STATUSES.has(status) && !isLockedOut) {
      return new BusyError(problem?.detail ?? `status ${status}`, retryAfterOf(response))
    }
    if (!problem) return new StartError(`The device returned status ${status}.`)
    return new StartError(
      [`${problem.detail} (${problem.code})`, ...errorLines(problem)].join('; '),
    )
  }

  failure(error: NodeJS.ErrnoException): Error {
    const { address, device, stop } = this.#options
    const { agentDomain } = device
    if (stop.aborted) return new StartError('Stopped before the end.')
    const { code = '', message } = error
    if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
      // So does a gateway until it has got the certificate of a domain.
      return new OfflineError(
        `the certificate at ${agentDomain} is for other names: the gateway still waits for a certificate, or connect.address is wrong`,
        { cause: error },
      )
    }
    if (/^(CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)/.test(code)) {
      return new StartError(
        `The certificate at ${agentDomain} is not trusted (${code}). Set connect.ca to the CA file of the gateway.`,
        { cause: error },
      )
    }
    if (BROKEN_OFF.has(code) || message === 'socket hang up') {
      return new BusyError(code || message, undefined, { cause: error })
    }
    if (code === 'ABORT_ERR') {
      const { cause } = error as Error & { cause?: Error }
      return new OfflineError(cause?.message ?? message, { cause: error })
    }
    const there = address ? formatListenAddress(address) : `${agentDomain}:443`
    const reason = REASONS[code]
    const said = reason ? `${there}: ${reason} (${code})` : code || message
    // Nobody answered there, not even the gateway.
    const remedy = address && reason ? '. Check connect.address in the fleet file.' : ''
    return new OfflineError(`${said}${remedy}`, { cause: error })
  }
}

/** The code of the gateway, which answers for a device that is offline. */
function serviceCodeOf({ headers }: AgentResponse): string | undefined {
  const code = headers['ngrok-error-code']
  return typeof code === 'string' ? code : undefined
}

/** Seconds; undefined: the response does not say. */
function retryAfterOf({ headers }: AgentResponse): number | undefined {
  const seconds = Number(headers['retry-after'] ?? Number.NaN)
  return seconds >= 0 ? seconds : undefined
}

/** Names below `.localhost` are this machine (RFC 6761 section 6.3); not every resolver knows. */
const loopback: LookupFunction = (_name, { all }, answer) => {
  if (all) answer(null, [{ address: '127.0.0.1', family: 4 }])
  else answer(null, '127.0.0.1', 4)
}
