import { constants } from 'node:crypto'
import { connect, isIP, type LookupFunction, type Socket } from 'node:net'
import {
  checkServerIdentity,
  connect as connectTls,
  DEFAULT_CIPHERS,
  type PeerCertificate,
  type SecureVersion,
  TLSSocket,
} from 'node:tls'
import { type ForwardTarget, type HostTarget, isSecure } from './forward-target.ts'
import type { TlsMinVersion } from './upstream-options.ts'

export interface ConnectionWish {
  /** Lookup function for names. Default: the system's. */
  readonly lookup?: LookupFunction | undefined
  /** Whether the certificate of a TLS service has to be trusted. */
  readonly verifyTls: boolean
  /** Oldest TLS version allowed. If set, weak ciphers and short keys are allowed too. */
  readonly tlsMinVersion?: TlsMinVersion | undefined
  /** Whether HTTP/2 will be used, which a TLS service needs to know in the handshake. */
  readonly http2?: boolean | undefined
  /** Sent first, before TLS, as servers expect for a PROXY header. */
  readonly preface?: Buffer | undefined
  /** Whether the client may send data after the service has ended its side. */
  readonly allowHalfOpen?: boolean
  /** Aborts the connect with its reason. */
  readonly signal: AbortSignal
}

/** The TLS handshake failed on an accepted connection. */
export class HandshakeError extends Error {
  override readonly name = 'HandshakeError'
  readonly kind: 'untrusted' | 'old-tls' | 'other'
  /** Names of the certificate, if the name of the service is none of them. Text of the service. */
  readonly otherNames: string | undefined

  constructor(cause: NodeJS.ErrnoException, otherNames?: string) {
    super(cause.message, { cause })
    this.kind = kindOf(cause.code)
    this.otherNames = this.kind === 'untrusted' ? otherNames : undefined
  }
}

/** The name of a service has no address. */
export class UnresolvedError extends Error {
  override readonly name = 'UnresolvedError'
  readonly code: string | undefined

  constructor(host: string, cause: NodeJS.ErrnoException) {
    super(`${host} cannot be resolved`, { cause })
    this.code = cause.code
  }
}

/**
 * Connects to a service and resolves when data can be sent. Rejects with the system's error if the connection
 * failed, and with a HandshakeError if TLS failed.
 */
export async function connectUpstream(
  target: ForwardTarget,
  wish: ConnectionWish,
): Promise<Socket> {
  const { lookup, preface, allowHalfOpen = false, signal } = wish
  const options = { allowHalfOpen, noDelay: true }
  const socket =
    'path' in target
      ? connect({ path: target.path, ...options })
      : connect({ host: target.host, port: target.port, ...options, ...(lookup && { lookup }) })
  await resolvedAndOpened(socket, target, signal)
  if (preface) socket.write(preface)
  if (!isSecure(target)) return socket
  const secured = connectTls({ socket, ...tlsOptions(target, wish) })
  let otherNames: string | undefined
  // Node looks at the name only if it trusts the certificate. A person needs to know both flaws.
  secured.prependOnceListener('secure', () => {
    otherNames = otherNamesOf(target.host, secured.getPeerCertificate())
  })
  try {
    return await opened(secured, 'secureConnect', signal)
  } catch (error) {
    socket.destroy()
    throw new HandshakeError(error as Error, otherNames)
  }
}

/** Opens a connection. Throws an UnresolvedError if the name has no address, also if DNS gives no answer in time. */
async function resolvedAndOpened(
  socket: Socket,
  target: ForwardTarget,
  signal: AbortSignal,
): Promise<void> {
  let isResolved = !('host' in target) || isIP(target.host) !== 0
  socket.once('lookup', (error: Error | null) => {
    isResolved ||= !error
  })
  try {
    await opened(socket, 'connect', signal)
  } catch (error) {
    const isStopped = signal.aborted && signal.reason?.name !== 'TimeoutError'
    if (isResolved || isStopped || !('host' in target)) throw error
    throw new UnresolvedError(target.host, error as Error)
  }
}

/** Names of a certificate that is not valid for the host. */
function otherNamesOf(host: string, certificate: PeerCertificate): string | undefined {
  if (!certificate.subject || !checkServerIdentity(host, certificate)) return undefined
  const names = certificate.subjectaltname?.split(', ').map((it) => it.replace(/^[^:]*:/, ''))
  return (names ?? [certificate.subject.CN].flat()).filter(Boolean).join(', ') || 'no name'
}

function opened(
  socket: Socket,
  event: 'connect' | 'secureConnect',
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const giveUp = () => socket.destroy(signal.reason)
    const settle = () => signal.removeEventListener('abort', giveUp)
    // This listener stays. Later errors are visible through `close` to callers without an error listener.
    socket.on('error', (error) => {
      settle()
      reject(error)
    })
    socket.once('close', () => {
      settle()
      reject(new Error('closed'))
    })
    socket.once(event, () => {
      settle()
      resolve(socket)
    })
    signal.addEventListener('abort', giveUp)
    if (signal.aborted) giveUp()
  })
}

/** Node 24 refuses keys that Node 20 accepts, such as 1,024 bits of Diffie-Hellman. Level 1 allows them. */
const USUAL_CIPHERS = `${DEFAULT_CIPHERS}:@SECLEVEL=1`
/** For cameras and controllers built from 2005 to 2015. */
const OLD_CIPHERS = 'ALL:!aNULL:!eNULL:@SECLEVEL=0'

function tlsOptions(
  { host }: HostTarget,
  { verifyTls, tlsMinVersion, http2 = false }: ConnectionWish,
) {
  return {
    ...(tlsMinVersion === undefined
      ? { ciphers: USUAL_CIPHERS }
      : {
          ciphers: OLD_CIPHERS,
          minVersion: VERSIONS[tlsMinVersion],
          secureOptions: constants.SSL_OP_LEGACY_SERVER_CONNECT,
        }),
    // An IP address cannot be sent as server name, but the certificate has to be valid for it.
    ...(isIP(host) === 0 ? { servername: host } : { host, servername: '' }),
    rejectUnauthorized: verifyTls,
    ALPNProtocols: [http2 ? 'h2' : 'http/1.1'],
  }
}

const VERSIONS: Readonly<Record<TlsMinVersion, SecureVersion>> = {
  '1.0': 'TLSv1',
  '1.1': 'TLSv1.1',
  '1.2': 'TLSv1.2',
}

/** Closes the socket with a reset if possible, so that the peer notices missing data. */
export function breakOff(socket: Socket): void {
  const isTcp = !(socket instanceof TLSSocket) && socket.remoteAddress !== undefined
  if (isTcp) socket.resetAndDestroy()
  else socket.destroy()
}

const UNTRUSTED =
  /CERT|ISSUER|SELF_SIGNED|LEAF_SIGNATURE|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE/

/** OpenSSL errors for a peer with versions, ciphers or keys that are too old. */
const OLD_TLS =
  /^ERR_SSL_(?:UNSUPPORTED_PROTOCOL|.*ALERT_PROTOCOL_VERSION|.*ALERT_HANDSHAKE_FAILURE|DH_KEY_TOO_SMALL|(?:EE|CA)_KEY_TOO_SMALL|CA_MD_TOO_WEAK|UNSAFE_LEGACY_RENEGOTIATION_DISABLED|WRONG_SIGNATURE_TYPE|NO_CIPHERS?_.*|WRONG_CIPHER_RETURNED)$/

function kindOf(code = ''): HandshakeError['kind'] {
  if (OLD_TLS.test(code)) return 'old-tls'
  // This prefix marks a TLS alert: the service does not trust this client.
  return UNTRUSTED.test(code) && !code.startsWith('ERR_SSL_') ? 'untrusted' : 'other'
}
