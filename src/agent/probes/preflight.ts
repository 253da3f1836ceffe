import type { LookupAddress } from 'node:dns'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { createConnection, isIP, type LookupFunction, type Socket } from 'node:net'
import { connect, type DetailedPeerCertificate, type TLSSocket } from 'node:tls'
import { StartError } from '../../base/app-error.ts'
import { type Clock, formatUtc } from '../../base/clock.ts'
import { abortable, DeadlineError, withDeadline } from '../../base/deadline.ts'
import { type ListenAddress, parseListenAddress } from '../../base/listen-address.ts'
import type { PreflightScope } from '../connector.ts'
import { ProblemError } from '../problem.ts'
import type { PreflightTimings } from '../timings.ts'
import {
  CLOCK_REMEDY,
  connectionProblem,
  nameProblem,
  RENEW_REMEDY,
  silenceProblem,
} from './connection-problem.ts'
import { CLOCK_TOLERANCE_MS, HOSTED_SERVICE } from './service-time.ts'

/** The certificate is trusted, but for other names. */
const WRONG_NAME = 'ERR_TLS_CERT_ALTNAME_INVALID'
const MAX_CERTIFICATES = 8
const MAX_CHARACTERS = 64

/**
 * Returns the names in a server's certificate chain, its own first: `gateway.lan ← site CA`. Untrusted text.
 */
export function shownChain(socket: TLSSocket): string {
  const names: string[] = []
  const seen = new Set<string>()
  let certificate: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true)
  let issuer: string | undefined
  // The last certificate of a chain is its own issuer.
  while (certificate?.fingerprint256 && !seen.has(certificate.fingerprint256)) {
    if (names.length === MAX_CERTIFICATES) return [...names, '…'].join(' ← ')
    seen.add(certificate.fingerprint256)
    names.push(nameOf(certificate.subject))
    issuer = nameOf(certificate.issuer)
    certificate = certificate.issuerCertificate
  }
  if (issuer !== undefined && issuer !== names.at(-1)) names.push(`${issuer} (not sent)`)
  return names.join(' ← ')
}

function nameOf(name: Partial<Record<string, string | string[]>> | undefined): string {
  const said = name?.CN ?? name?.O
  const text = Array.isArray(said) ? said[0] : said
  return (text ?? 'unnamed certificate').slice(0, MAX_CHARACTERS)
}

/** After a timeout, the next attempt waits twice as long, up to this factor: the link may be slow. */
const MAX_PATIENCE = 4
/** Node's default is 250 ms per address, which is too short for mobile networks. */
const ADDRESS_ATTEMPT_MS = 1_500

/** Steps of a connect, in their order. */
export const PREFLIGHT_STEPS = ['dns', 'tcp', 'tls'] as const
export type PreflightStep = (typeof PREFLIGHT_STEPS)[number]
/**
 * A ClientHello for TLS 1.0 without any cipher suite. Each server refuses it with an alert, without any
 * cryptography. RFC 2246, sections 6.2.1 and 7.4.1.2.
 */
const REFUSED_HELLO = Buffer.from(`160301002d010000290301${'00'.repeat(32)}00000200ff0100`, 'hex')
/** More addresses say no more to a person. */
const MAX_ADDRESSES = 3

export interface PreflightOptions {
  /** `host:port`. Undefined: the hosted service. */
  readonly serverAddr: string | undefined
  /** PEM text. Without it only the dates are checked, because the SDK has its own CA. */
  readonly caCert: string | undefined
  /** Its file, for remedies. */
  readonly caCertPath?: string | undefined
  /** Returns the time of the service (HTTP `Date`), if it answers. */
  readonly serviceDate: () => Promise<number | undefined>
  /** Called with the certificates of the service before they are checked. */
  readonly onChain?: (chain: string) => void
  /** Called before each step. */
  readonly onStep?: (step: PreflightStep) => void
  readonly timings: PreflightTimings
  readonly clock: Clock
}

/**
 * Returns a function that runs the preflight of an address. Each address has its own Preflight. Without
 * addresses, the hosted service is checked.
 */
export function preflightsTo(
  serverAddrs: readonly string[],
  options: Omit<PreflightOptions, 'serverAddr'>,
): (serverAddr: string | undefined, signal: AbortSignal, scope?: PreflightScope) => Promise<void> {
  const addresses = serverAddrs.length > 0 ? serverAddrs : [undefined]
  const preflights = new Map(
    addresses.map((serverAddr) => [serverAddr, new Preflight({ ...options, serverAddr })]),
  )
  return async (serverAddr, signal, scope) => preflights.get(serverAddr)?.run(signal, scope)
}

/**
 * Makes the steps of the SDK's connect in Node: resolve, connect, handshake. The SDK would hang on a silent
 * server, and reports all failures with the same message.
 */
export class Preflight {
  readonly #options: PreflightOptions
  readonly #server: ListenAddress
  readonly #where: string
  #lookup: Promise<LookupAddress[]> | undefined
  #patience = 1

  constructor(options: PreflightOptions) {
    this.#options = options
    this.#where = options.serverAddr ?? HOSTED_SERVICE
    const server = parseListenAddress(this.#where)
    if (!server) throw new StartError(`SVC_SERVER_ADDR must be host:port, not ${this.#where}.`)
    this.#server = server
  }

  /** Throws a ProblemError with the reason `dns`, `network`, `tls` or `clock`. */
  async run(signal: AbortSignal, scope: PreflightScope = 'whole'): Promise<void> {
    const { timings, onStep } = this.#options
    onStep?.('dns')
    const addresses = await abortable(this.#resolve(), signal)
    const { host, port } = this.#server
    onStep?.('tcp')
    const socket = createConnection({
      host,
      port,
      lookup: answerWith(addresses),
      autoSelectFamilyAttemptTimeout: ADDRESS_ATTEMPT_MS * this.#patience,
    })
    try {
      await this.#until('connect', socket, timings.connectMs, signal).catch((error) => {
        throw this.#withAddresses(error, addresses)
      })
      onStep?.('tls')
      if (scope === 'brief') await this.#knock(socket, signal)
      else await this.#shakeHands(socket, signal)
    } finally {
      socket.destroy()
    }
  }

  /** Waits for any answer, because the SDK would hang on a silent server. */
  async #knock(socket: Socket, signal: AbortSignal): Promise<void> {
    const hungUp = () => Object.assign(new Error('the server hung up'), { code: 'ECONNRESET' })
    socket.once('end', () => socket.destroy(hungUp()))
    socket.write(REFUSED_HELLO)
    await this.#until('data', socket, this.#options.timings.tlsMs, signal)
  }

  async #shakeHands(socket: Socket, signal: AbortSignal): Promise<void> {
    const { caCert, timings } = this.#options
    const { host } = this.#server
    const secured = connect({
      socket,
      host,
      servername: isIP(host) ? '' : host,
      // Checked later, where a wrong clock and a wrong certificate can be distinguished.
      rejectUnauthorized: false,
      ...(caCert !== undefined && { ca: caCert }),
    })
    await this.#until('secureConnect', secured, timings.tlsMs, signal)
    await this.#judge(secured)
  }

  async #resolve(): Promise<LookupAddress[]> {
    const { host } = this.#server
    const { dnsMs } = this.#options.timings
    // A hanging lookup uses one of the few resolver threads of the process, so a second one is never started.
    this.#lookup ??= lookup(host, { all: true }).finally(() => {
      this.#lookup = undefined
    })
    try {
      return await withDeadline(this.#lookup, dnsMs * this.#patience, 'resolving the name')
    } catch (error) {
      const isSlow = error instanceof DeadlineError
      if (isSlow) this.#patience = Math.min(2 * this.#patience, MAX_PATIENCE)
      const code = isSlow ? Object.assign(new Error(), { code: 'EAI_AGAIN' }) : error
      throw new ProblemError(connectionProblem(host, code), { cause: error })
    }
  }

  async #until(event: string, socket: Socket, usualMs: number, signal: AbortSignal): Promise<void> {
    const ms = usualMs * this.#patience
    // Ignores errors after the event.
    socket.on('error', () => {})
    const isOver = new AbortController()
    const happened = once(socket, event, { signal: isOver.signal })
    try {
      await abortable(withDeadline(happened, ms, event), signal)
    } catch (error) {
      isOver.abort()
      signal.throwIfAborted()
      const isSilent = error instanceof DeadlineError
      if (isSilent) this.#patience = Math.min(2 * this.#patience, MAX_PATIENCE)
      throw new ProblemError(
        isSilent
          ? silenceProblem(this.#where, ms, event !== 'connect')
          : connectionProblem(this.#where, error),
        { cause: error },
      )
    }
  }

  /** Shows the addresses of the name, because DNS may lead to another server. */
  #withAddresses(error: unknown, addresses: readonly LookupAddress[]): unknown {
    const { host } = this.#server
    if (!(error instanceof ProblemError) || isIP(host) || host === 'localhost') return error
    const shown = addresses.slice(0, MAX_ADDRESSES).map(({ address }) => address)
    const { problem } = error
    const detail = `${problem.detail} (${shown.join(', ')})`
    return new ProblemError({ ...problem, detail }, { cause: error.cause })
  }

  /** Throws unless the certificate of the service is trusted and valid now. */
  async #judge(socket: TLSSocket): Promise<void> {
    const { clock, caCert, caCertPath, onChain } = this.#options
    onChain?.(shownChain(socket))
    const certificate = socket.getPeerX509Certificate()
    const now = clock.now()
    if (certificate && now < Date.parse(certificate.validFrom)) {
      // Certificates are not issued for the future. Unless the service says so, the clock of this device is
      // slow.
      await this.#blame(`is not yet valid (before ${dayOf(certificate.validFrom)})`, 'clock')
    }
    if (certificate && now > Date.parse(certificate.validTo)) {
      await this.#blame(`has expired (on ${dayOf(certificate.validTo)})`, 'tls')
    }
    if (caCert === undefined || socket.authorized) return
    const code = String(socket.authorizationError)
    if (code === WRONG_NAME) {
      const names = certificate?.subjectAltName ?? ''
      throw new ProblemError(nameProblem(this.#where, this.#server.host, names))
    }
    const error = Object.assign(new Error(), { code })
    throw new ProblemError(connectionProblem(this.#where, error, caCertPath))
  }

  async #blame(flaw: string, otherwise: 'clock' | 'tls'): Promise<never> {
    const theirs = await this.#options.serviceDate()
    const ours = this.#options.clock.now()
    const agrees = theirs !== undefined && Math.abs(theirs - ours) <= CLOCK_TOLERANCE_MS
    const reason = theirs === undefined ? otherwise : agrees ? 'tls' : 'clock'
    const said = theirs === undefined ? '' : `, the clock of the gateway ${formatUtc(theirs)}`
    throw new ProblemError({
      reason,
      detail: `the certificate of ${this.#where} ${flaw}; the device clock says ${formatUtc(ours)}${said}`,
      remedy: reason === 'clock' ? CLOCK_REMEDY : RENEW_REMEDY,
      permanent: false,
    })
  }
}

const dayOf = (date: string) => new Date(date).toISOString().slice(0, 10)

function answerWith(addresses: LookupAddress[]): LookupFunction {
  return (_name, { all }, answer) => {
    const [first] = addresses
    if (all) answer(null, addresses)
    else answer(null, first?.address ?? '', first?.family ?? 0)
  }
}
