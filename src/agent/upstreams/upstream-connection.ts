import { constants } from 'node:crypto'
import { connect, isIP, type LookupFunction, type Socket } from 'node:net'
import { connect as connectTls, DEFAULT_CIPHERS, type SecureVersion, TLSSocket } from 'node:tls'
import { type ForwardTarget, type HostTarget, isSecure } from './forward-target.ts'
import type { TlsMinVersion } from './upstream-options.ts'

export interface ConnectionWish {
  /** How a name is looked up; unset: as the system does it. */
  readonly lookup?: LookupFunction | undefined
  /** Whether the certificate of a service that speaks TLS has to be trusted. */
  readonly verifyTls: boolean
  /** The oldest TLS that will do; given at all, weak ciphers and short keys will do, too. */
  readonly tlsMinVersion?: TlsMinVersion | undefined
  /** Whether HTTP/2 will be spoken: a service that speaks TLS wants to know first. */
  readonly http2?: boolean | undefined
  /** Sent before all else, TLS included, as servers want a PROXY header. */
  readonly preface?: Buffer | undefined
  /** Whether it may say something still when the service has said all. */
  readonly allowHalfOpen?: boolean
  /** Gives up with its reason. */
  readonly signal: AbortSignal
}

/** TLS failed on a connection that was taken. */
export class HandshakeError extends Error {
  override readonly name = 'HandshakeError'
  readonly kind: 'untrusted' | 'old-tls' | 'other'

  constructor(cause: NodeJS.ErrnoException) {
    super(cause.message, { cause })
    this.kind = kindOf(cause.code)
  }
}

/**
 * A connection to a service that can be written to. Rejects as the system does where none was taken,
 * and with a HandshakeError where TLS failed on it.
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
  await opened(socket, 'connect', signal)
  if (preface) socket.write(preface)
  if (!isSecure(target)) return socket
  const secured = connectTls({ socket, ...tlsOptions(target, wish) })
  try {
    return await opened(secured, 'secureConnect', signal)
  } catch (error) {
    socket.destroy()
    throw new HandshakeError(error as Error)
  }
}

function opened(
  socket: Socket,
  event: 'connect' | 'secureConnect',
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const giveUp = () => socket.destroy(signal.reason)
    const settle = () => signal.removeEventListener('abort', giveUp)
    // Stays: what fails afterwards is told by its close to whoever does not listen for errors.
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

/** Node 24 refuses keys that Node 20 takes, such as 1,024 bits of Diffie-Hellman: level 1 takes them. */
const USUAL_CIPHERS = `${DEFAULT_CIPHERS}:@SECLEVEL=1`
/** Cameras and controllers of 2005 to 2015. */
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
    // An address is no name that a server could be asked for; it is what the certificate has to be for.
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

/** Breaks it off, so that the other side sees that something is missing, where there is a way. */
export function breakOff(socket: Socket): void {
  const isTcp = !(socket instanceof TLSSocket) && socket.remoteAddress !== undefined
  if (isTcp) socket.resetAndDestroy()
  else socket.destroy()
}

const UNTRUSTED =
  /CERT|ISSUER|SELF_SIGNED|LEAF_SIGNATURE|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE/

/** What OpenSSL says of a peer whose versions, ciphers or keys are too old for it. */
const OLD_TLS =
  /^ERR_SSL_(?:UNSUPPORTED_PROTOCOL|.*ALERT_PROTOCOL_VERSION|.*ALERT_HANDSHAKE_FAILURE|DH_KEY_TOO_SMALL|(?:EE|CA)_KEY_TOO_SMALL|CA_MD_TOO_WEAK|UNSAFE_LEGACY_RENEGOTIATION_DISABLED|WRONG_SIGNATURE_TYPE|NO_CIPHERS?_.*|WRONG_CIPHER_RETURNED)$/

function kindOf(code = ''): HandshakeError['kind'] {
  if (OLD_TLS.test(code)) return 'old-tls'
  // What begins so is an alert: it is the service that does not trust us.
  return UNTRUSTED.test(code) && !code.startsWith('ERR_SSL_') ? 'untrusted' : 'other'
}
