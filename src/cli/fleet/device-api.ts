import { request } from 'node:https'
import type { LookupFunction } from 'node:net'
import type { SecureContext } from 'node:tls'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { abortedAfter } from '../../base/deadline.ts'
import { formatListenAddress, type ListenAddress } from '../../base/listen-address.ts'
import { exchange, type ReadAnswer } from '../../base/net/node-http.ts'
import type { ListedDevice } from '../provision/device-list.ts'
import type { WantedTunnel } from './fleet-file.ts'

/** A device waits up to 15 s for its service, and a list may be long. */
const TIMEOUT_MS = 60_000
const MAX_ANSWER_BYTES = 32 * 1024 * 1024

/** The way there, or the device, is busy, full or about to end. */
const BUSY_STATUSES = new Set([408, 425, 429, 502, 503, 504])
/** The connection broke off: a request may have arrived or not. */
const BROKEN_OFF = new Set(['ECONNRESET', 'EPIPE'])

/** Why nobody was reached, by the code of the system. */
const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'unknown host name',
  EAI_AGAIN: 'no DNS server responds',
  ETIMEDOUT: 'no answer',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no network',
}

// Only what is of use here: devices may be of other versions.
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
const Problem = z.object({
  code: z.string(),
  detail: z.string(),
  errors: z.array(z.object({ pointer: z.string(), detail: z.string() })).default([]),
})

/** What becomes, or would become, of a tunnel. */
export type TunnelStep = z.infer<typeof Step>
/** What a device answers to a whole set. */
export type TunnelSetAnswer = z.infer<typeof TunnelSet>

/** The service answers for the device, or nobody does: it may be back at any time. */
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
/** Somebody has changed the tunnels since they were looked at. */
export class OvertakenError extends Error {}

export interface DeviceApiOptions {
  readonly device: ListedDevice
  /** Where to connect; undefined: where DNS leads, port 443. */
  readonly address: ListenAddress | undefined
  /** Undefined: the public CAs. */
  readonly trust: SecureContext | undefined
  readonly stop: AbortSignal
}

interface Answer {
  readonly status: number
  readonly serviceCode: string | undefined
  readonly retryAfterS: number | undefined
  readonly text: string
}

/**
 * The API of one device, at its domain and with its token. Throws OfflineError, OvertakenError, or a
 * StartError that says what to do.
 */
export class DeviceApi {
  readonly #options: DeviceApiOptions

  constructor(options: DeviceApiOptions) {
    this.#options = options
  }

  plan(wanted: readonly WantedTunnel[]): Promise<TunnelSetAnswer> {
    return this.#ask('PUT', '/tunnels?dry_run=true', TunnelSet, wanted)
  }

  /** Only while they are as the plan with this ETag has found them. */
  replace(wanted: readonly WantedTunnel[], etag: string): Promise<TunnelSetAnswer> {
    return this.#ask('PUT', '/tunnels', TunnelSet, wanted, { 'if-match': etag })
  }

  status(): Promise<z.infer<typeof Status>> {
    return this.#ask('GET', '/status', Status)
  }

  /** Ends the token that all of this is done with; one that is not there any more has ended. */
  async revokeToken(): Promise<void> {
    const answer = await this.#send('DELETE', '/tokens/provisioned', undefined, {})
    const { status, serviceCode } = answer
    const isGone = status === 404 && serviceCode === undefined
    if (!isGone && (status < 200 || status >= 300)) throw this.#refusal(answer)
  }

  async #ask<T>(
    method: string,
    path: string,
    schema: z.ZodType<T>,
    body?: object,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<T> {
    const answer = await this.#send(method, path, body, headers)
    const { status, text } = answer
    if (status >= 200 && status < 300) {
      const parsed = schema.safeParse(text === '' ? undefined : tryJson(text))
      if (parsed.success) return parsed.data
      throw new StartError('The response has an unknown format. The agent has another version.')
    }
    throw this.#refusal(answer)
  }

  #refusal({ status, serviceCode, retryAfterS, text }: Answer): Error {
    const problem = Problem.safeParse(tryJson(text)).data
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
      return new BusyError(problem?.detail ?? `status ${status}`, retryAfterS)
    }
    if (!problem) return new StartError(`The device returned status ${status}.`)
    const places = problem.errors.map(({ pointer, detail }) => `${pointer} ${detail}`)
    return new StartError([`${problem.detail} (${problem.code})`, ...places].join('; '))
  }

  async #send(
    method: string,
    path: string,
    body: object | undefined,
    headers: Readonly<Record<string, string>>,
  ): Promise<Answer> {
    const { device, address, trust, stop } = this.#options
    const { agentDomain, apiToken } = device
    const content = body === undefined ? undefined : JSON.stringify(body)
    try {
      return await abortedAfter(TIMEOUT_MS, stop, async (signal) => {
        const sent = request({
          method,
          path,
          signal,
          agent: false,
          host: address?.host ?? agentDomain,
          port: address?.port ?? 443,
          servername: agentDomain,
          ...(!address && agentDomain.endsWith('.localhost') && { lookup: loopback }),
          ...(trust && { secureContext: trust }),
          headers: {
            host: agentDomain,
            connection: 'close',
            authorization: `Bearer ${apiToken.reveal()}`,
            ...(content !== undefined && {
              'content-type': 'application/json',
              'content-length': String(Buffer.byteLength(content)),
            }),
            ...headers,
          },
        })
        return toAnswer(await exchange(sent, content, MAX_ANSWER_BYTES))
      })
    } catch (error) {
      if (stop.aborted) throw new StartError('Stopped before the end.')
      const { code, message } = error as NodeJS.ErrnoException
      if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
        // So does a gateway until it has got the certificate of a domain.
        throw new OfflineError(
          `the certificate at ${agentDomain} is for other names: the gateway still waits for a certificate, or connect.address is wrong`,
          { cause: error },
        )
      }
      if (/^(CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)/.test(code ?? '')) {
        throw new StartError(
          `The certificate at ${agentDomain} is not trusted (${code}). Set connect.ca to the CA file of the gateway.`,
          { cause: error },
        )
      }
      if (BROKEN_OFF.has(code ?? '') || message === 'socket hang up') {
        throw new BusyError(code ?? message, undefined, { cause: error })
      }
      if (code === 'ABORT_ERR') {
        const { cause } = error as Error & { cause?: Error }
        throw new OfflineError(cause?.message ?? message, { cause: error })
      }
      const there = address ? formatListenAddress(address) : `${agentDomain}:443`
      const reason = REASONS[code ?? '']
      throw new OfflineError(reason ? `${there}: ${reason} (${code})` : (code ?? message), {
        cause: error,
      })
    }
  }
}

function toAnswer({ response: { statusCode = 0, headers }, text }: ReadAnswer): Answer {
  const code = headers['ngrok-error-code']
  const retryAfterS = Number(headers['retry-after'] ?? Number.NaN)
  return {
    status: statusCode,
    serviceCode: typeof code === 'string' ? code : undefined,
    retryAfterS: retryAfterS >= 0 ? retryAfterS : undefined,
    text,
  }
}

/** Names below `.localhost` are this machine (RFC 6761 section 6.3); not every resolver knows. */
const loopback: LookupFunction = (_name, { all }, answer) => {
  if (all) answer(null, [{ address: '127.0.0.1', family: 4 }])
  else answer(null, '127.0.0.1', 4)
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
