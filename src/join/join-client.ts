import { X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import { connect, type TLSSocket } from 'node:tls'
import type { Clock } from '../base/clock.ts'
import { formatListenAddress, type ListenAddress, localhostLookup } from '../base/listen-address.ts'
import { onAbort } from '../base/on-abort.ts'
import { Secret } from '../base/secret.ts'
import {
  Hello,
  JOIN_PROTOCOL,
  JOIN_REFUSALS,
  JOIN_VERSION,
  type JoinRefusal,
  MAX_ANSWER_BYTES,
  Refusal,
  VersionOf,
  Welcome,
} from './join-messages.ts'
import { type JoinString, pinOf } from './join-string.ts'
import { ChannelError, type ChannelFault, MessageChannel, messageOf } from './message-channel.ts'

/** Time for one address: connection, checks and the answer of the gateway. */
const ADDRESS_MS = 20_000

export interface JoinRequest {
  readonly joinString: JoinString
  /**
   * 16 or more random bytes in base64url, kept on disk before the call. A repeated request with the same claim
   * gets a new authtoken. The gateway revokes the earlier one when the new one is used.
   */
  readonly claim: Secret
  readonly hostname: string
  /**
   * Authtoken of an earlier join at the same gateway, so that the device keeps its name.
   */
  readonly earlierAuthtoken?: Secret | undefined
  /** Version of device-agent on this device. */
  readonly version?: string
  readonly clock: Pick<Clock, 'now'>
  /** Ends the attempt. */
  readonly stop?: AbortSignal
  /** Time for each address. */
  readonly timeoutMs?: number
}

/** A device that may connect. */
export interface Joined {
  readonly name: string
  readonly authtoken: Secret
  readonly domain: string | undefined
  /** Value for AGENT_DOMAIN. */
  readonly agentDomain: string | undefined
  /** URL of the device, with the port of visitors. */
  readonly agentUrl: string | undefined
  readonly tags: readonly string[]
  /** Values for SVC_SERVER_ADDR. The address that has answered is the first. */
  readonly serverAddrs: readonly string[]
  /** Text for the file of SVC_CA_CERT. */
  readonly caPem: string
  /** How far the clock of this device is ahead of the gateway's; negative if it is behind. */
  readonly clockAheadMs: number
}

/** Why a device could not join through an address. */
export type JoinProblem =
  | JoinRefusal
  | 'unreachable'
  | 'timeout'
  | 'closed'
  | 'no-gateway'
  | 'newer-gateway'
  | 'malformed-answer'
  | 'other-ca'
  | 'other-certificate'
  | 'other-name'
  | 'certificate-expired'
  | 'stopped'

/** The device has not joined. The message has one line per address. */
export class JoinError extends Error {
  override readonly name = 'JoinError'
  /** Reason at the address that decided, or at the last one. */
  readonly problem: JoinProblem
  /**
   * Whether the secret was sent without an answer. The gateway may count the invitation as used; the same
   * claim may join again.
   */
  readonly isUnanswered: boolean

  constructor(message: string, problem: JoinProblem, isUnanswered = false) {
    super(message)
    this.problem = problem
    this.isUnanswered = isUnanswered
  }
}

/**
 * Joins a gateway with an invitation. Tries each address until a gateway answers. The secret is sent only to a
 * gateway that has proved itself: its CA has the pinned key, and this CA has signed the TLS certificate, which
 * has the dialed name. The clock of the device may be wrong: validity is checked at the time of the gateway.
 * Throws a JoinError.
 */
export async function joinGateway(request: JoinRequest): Promise<Joined> {
  const failures: { readonly where: string; readonly error: JoinError }[] = []
  for (const address of request.joinString.addresses) {
    const where = formatListenAddress(address)
    try {
      return await joinAt(address, request)
    } catch (error) {
      if (!(error instanceof JoinError)) throw error
      failures.push({ where, error })
      const { problem } = error
      if (problem === 'stopped' || isFinal(problem)) break
    }
  }
  const last = failures.at(-1)?.error
  throw new JoinError(
    failures.map(({ where, error }) => `${where}: ${error.message}`).join('\n'),
    last?.problem ?? 'unreachable',
    failures.some(({ error }) => error.isUnanswered) && !isFinal(last?.problem),
  )
}

function isFinal(problem: JoinProblem | undefined): boolean {
  const refusals: Readonly<Record<string, string>> = JOIN_REFUSALS
  return problem !== undefined && refusals[problem] === 'final'
}

async function joinAt(address: ListenAddress, request: JoinRequest): Promise<Joined> {
  const { stop, timeoutMs = ADDRESS_MS, clock } = request
  if (stop?.aborted) throw new JoinError('Stopped.', 'stopped')
  const { host, port } = address
  const socket = connect({
    host,
    port,
    ...(isIP(host) === 0 && { servername: host }),
    ...(host === 'localhost' && { lookup: localhostLookup }),
    ALPNProtocols: [JOIN_PROTOCOL],
    minVersion: 'TLSv1.2',
    // Checked by `checkGateway`: the system does not know the CA, and the clock may be wrong.
    rejectUnauthorized: false,
  })
  const channel = new MessageChannel(socket, { maxBytes: MAX_ANSWER_BYTES, deadlineMs: timeoutMs })
  const off = stop && onAbort(stop, () => socket.destroy())
  const step = { isSent: false }
  try {
    await connected(socket)
    const hello = messageFrom(await channel.receive(), Hello)
    const clockAheadMs = clock.now() - hello.now
    const ca = checkGateway(socket, host, hello, request.joinString.pin)
    channel.send(claimOf(request))
    step.isSent = true
    const answer = await channel.receive()
    throwRefusal(answer)
    const welcome = messageFrom(answer, Welcome)
    return joinedOf(welcome, formatListenAddress(address), ca.toString(), clockAheadMs)
  } catch (error) {
    if (stop?.aborted) throw new JoinError('Stopped.', 'stopped', step.isSent)
    if (!(error instanceof ChannelError)) throw error
    throw channelProblem(channel.fault ?? error.fault, step.isSent, timeoutMs)
  } finally {
    off?.()
    socket.destroy()
  }
}

function claimOf({ joinString, claim, hostname, version, earlierAuthtoken }: JoinRequest) {
  const { id, secret } = joinString
  return {
    v: JOIN_VERSION,
    id,
    secret: secret.reveal(),
    claim: claim.reveal(),
    hostname: hostname.slice(0, 255),
    ...(earlierAuthtoken && { earlier: earlierAuthtoken.reveal() }),
    ...(version !== undefined && { version }),
  }
}

function joinedOf(welcome: Welcome, used: string, caPem: string, clockAheadMs: number): Joined {
  const { name, authtoken, domain, tags } = welcome
  return {
    name,
    authtoken: new Secret(authtoken),
    domain,
    agentDomain: welcome.agent_domain,
    agentUrl: welcome.agent_url,
    tags,
    serverAddrs: [...new Set([used, ...welcome.server_addrs])],
    caPem,
    clockAheadMs,
  }
}

/** Resolves when the handshake is done and the peer accepts devices that join. */
function connected(socket: TLSSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', () => {
      if (socket.alpnProtocol === JOIN_PROTOCOL) resolve()
      else reject(noGateway())
    })
    socket.once('error', (error: NodeJS.ErrnoException) => reject(connectProblem(error)))
    socket.once('close', () => reject(new ChannelError('closed')))
  })
}

function noGateway(): JoinError {
  return new JoinError(
    'answers, but not as a gateway that takes join strings. Update the gateway, or check the port. A proxy that opens TLS also causes this. Nothing secret was sent.',
    'no-gateway',
  )
}

function connectProblem(error: NodeJS.ErrnoException): JoinError {
  const { code = '' } = error
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return new JoinError(
      `the name cannot be resolved (${code}). Check the DNS of this device.`,
      'unreachable',
    )
  }
  if (code === 'ECONNRESET') return channelProblem('closed', false, 0)
  if (code.startsWith('ERR_SSL_') || code === 'EPROTO') return noGateway()
  return new JoinError(
    `cannot be reached (${code || 'no address'}). Check the network, and that the gateway runs. device-agent uses no HTTP proxy.`,
    'unreachable',
  )
}

/** Throws a JoinError if the answer is a refusal. Only for a gateway that has proved itself. */
function throwRefusal(answer: unknown): void {
  const { error: code, message } = Refusal.safeParse(answer).data ?? {}
  if (code === undefined || message === undefined) return
  // A code of a later version is about this invitation, as most are.
  const isKnown = Object.hasOwn(JOIN_REFUSALS, code)
  throw new JoinError(message, isKnown ? (code as JoinRefusal) : 'not-allowed')
}

/** Parses a message of the gateway. Throws a JoinError for messages of other versions. */
function messageFrom<T extends Hello | Welcome>(
  value: unknown,
  schema: { safeParse(value: unknown): { success: boolean; data?: T } },
): T {
  const { v } = messageOf(VersionOf, value)
  if (v !== JOIN_VERSION) {
    throw new JoinError(
      'uses a newer version for joining. Update device-agent on this device first.',
      'newer-gateway',
    )
  }
  const parsed = schema.safeParse(value)
  if (parsed.data === undefined) throw new ChannelError('malformed')
  return parsed.data
}

/**
 * Returns the CA of the peer. Throws a JoinError unless the peer is the gateway of the join string, reached by
 * its right name.
 */
function checkGateway(
  socket: TLSSocket,
  host: string,
  { ca: caPem, now }: Hello,
  pin: string,
): X509Certificate {
  const leaf = socket.getPeerX509Certificate()
  const ca = readCertificate(caPem)
  if (!leaf || !ca || pinOf(caPem) !== pin) {
    throw new JoinError(
      'has another CA than the join string names. A proxy is in between, or the gateway lost its CA. Nothing secret was sent.',
      'other-ca',
    )
  }
  if (!ca.ca || leaf.ca || !leaf.checkIssued(ca) || !leaf.verify(ca.publicKey)) {
    throw new JoinError(
      'has a TLS certificate that its CA has not issued. A proxy is in between. Nothing secret was sent.',
      'other-certificate',
    )
  }
  const names = { subject: 'never' } as const
  if ((isIP(host) ? leaf.checkIP(host) : leaf.checkHost(host, names)) === undefined) {
    throw new JoinError(
      `has a certificate without the name ${host}. Add ${host} to GATEWAY_PUBLIC_NAMES of the gateway, restart it and try again. The invitation was not used.`,
      'other-name',
    )
  }
  if (![leaf, ca].every((certificate) => isValidAt(certificate, now))) {
    throw new JoinError(
      'has a certificate that is not valid at its own time. Check the clock of the gateway. The invitation was not used.',
      'certificate-expired',
    )
  }
  return ca
}

function isValidAt({ validFrom, validTo }: X509Certificate, now: number): boolean {
  return Date.parse(validFrom) <= now && now < Date.parse(validTo)
}

function readCertificate(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem)
  } catch {
    return undefined
  }
}

function channelProblem(fault: ChannelFault, isSent: boolean, timeoutMs: number): JoinError {
  switch (fault) {
    case 'timeout':
      return new JoinError(
        `did not answer within ${timeoutMs / 1_000} s. Try again.`,
        'timeout',
        isSent,
      )
    case 'closed':
      return new JoinError(
        'closed the connection before its answer. It may be stopping; try again.',
        'closed',
        isSent,
      )
    case 'too-large':
    case 'malformed':
      return new JoinError(
        'sent an answer that is no answer of a gateway. Check the address and the port.',
        'malformed-answer',
        isSent,
      )
  }
}
