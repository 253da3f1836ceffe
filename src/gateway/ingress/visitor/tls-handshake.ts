import { constants } from 'node:crypto'
import { Socket } from 'node:net'
import { createSecureContext, type SecureContext, TLSSocket, type TLSSocketOptions } from 'node:tls'
import type { TlsTerms } from '../../../policy/exchange/outcome.ts'
import type { ServedCertificate } from '../../certificates/certificate-file.ts'
import type { TransportSocket } from '../common/client-socket.ts'

const ID_CONTEXT_LENGTH = 32

/** Secure contexts, kept as long as the policy with the terms and the certificate. */
const CONTEXTS = new WeakMap<TlsTerms, WeakMap<ServedCertificate, SecureContext>>()

/** Returns the secure context for the terms of a policy and the certificate of a name. */
function termsContext(terms: TlsTerms, certificate: ServedCertificate): SecureContext {
  const contexts = CONTEXTS.get(terms) ?? new WeakMap<ServedCertificate, SecureContext>()
  CONTEXTS.set(terms, contexts)
  const context = contexts.get(certificate) ?? createContext(terms, certificate)
  contexts.set(certificate, context)
  return context
}

function createContext(terms: TlsTerms, certificate: ServedCertificate): SecureContext {
  const { id, minVersion, maxVersion, own, authorities, clientCertificates } = terms
  const { certPem: cert, keyPem: key } = own ?? certificate
  return createSecureContext({
    cert,
    key,
    minVersion,
    maxVersion,
    // Each certificate is an authority, even if it is signed by another.
    ...(authorities.length > 0 && { ca: [...authorities], allowPartialTrustChain: true }),
    // On a resumed session, the client certificate would not be checked again.
    ...(clientCertificates !== 'none' && { secureOptions: constants.SSL_OP_NO_TICKET }),
    sessionIdContext: id.slice(0, ID_CONTEXT_LENGTH),
  })
}

export interface HandshakeOptions {
  readonly socket: TransportSocket
  readonly certificate: ServedCertificate
  /** Terms of a policy; default: the gateway's terms. */
  readonly terms?: TlsTerms | undefined
  /** In order of preference (RFC 7301). */
  readonly protocols?: readonly string[] | undefined
  /** Called once with the result, in the turn in which the handshake completes. */
  onSettled(isAgreed: boolean): void
}

const ADDRESSES = ['remoteAddress', 'remotePort', 'localAddress', 'localPort'] as const

/**
 * TLS over a connection that can reset its transport. `destroy` of a TLSSocket sends a FIN. A client that
 * ignores a missing close_notify then takes a partial body for the complete body.
 */
class SecuredSocket extends TLSSocket {
  readonly #transport: TransportSocket

  constructor(transport: TransportSocket, options: TLSSocketOptions) {
    // Node's types require a Socket, but any duplex works.
    super(transport as Socket, options)
    this.#transport = transport
    // A load balancer named the visitor: the handle has other addresses.
    if (Object.hasOwn(transport, 'remoteAddress')) {
      for (const name of ADDRESSES) Object.defineProperty(this, name, { value: transport[name] })
    }
  }

  override resetAndDestroy(): this {
    // Node resets a marked socket when TLS destroys it. A reset of the transport itself would free its handle
    // under TLS. The next `destroy` of both would then end the process.
    if (this.#transport instanceof Socket) Object.assign(this.#transport, { resetAndClosing: true })
    return this.destroy()
  }
}

/**
 * Ends TLS on a connection. If the handshake fails, the connection is closed. That includes a client without
 * the valid certificate that the terms require.
 */
export class Handshake {
  /** The socket for the decrypted data. */
  readonly secured: TLSSocket
  readonly terms: TlsTerms | undefined
  readonly #onSettled: (isAgreed: boolean) => void
  #isSettled = false

  constructor({ socket, certificate, terms, protocols, onSettled }: HandshakeOptions) {
    this.terms = terms
    this.#onSettled = onSettled
    const { clientCertificates = 'none' } = terms ?? {}
    const secured = new SecuredSocket(socket, {
      isServer: true,
      secureContext: terms ? termsContext(terms, certificate) : certificate.context,
      requestCert: clientCertificates !== 'none',
      rejectUnauthorized: clientCertificates.startsWith('require-'),
      ...(protocols && { ALPNProtocols: [...protocols] }),
    })
    this.secured = secured
    // Client errors need no handling: `close` follows.
    secured.on('error', () => {})
    secured.on('close', () => this.#settle(false))
    // A client that ends during the handshake would be kept as a half-open connection.
    secured.on('end', () => {
      if (!this.#isSettled) secured.destroy()
    })
    secured.on('secure', () => {
      const isAgreed = clientCertificates !== 'require-and-verify' || isVerified(secured)
      this.#settle(isAgreed)
      if (!isAgreed) secured.destroy()
    })
  }

  get isSettled(): boolean {
    return this.#isSettled
  }

  #settle(isAgreed: boolean): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.#onSettled(isAgreed)
  }
}

/** The part of Node's handle with OpenSSL's verdict on a certificate. */
interface Verifier {
  readonly _handle?: { readonly verifyError?: () => Error | null | undefined }
}

/**
 * Whether the client certificate is signed by an authority, intended for clients, and valid now. Node checks
 * that only for its own servers.
 */
function isVerified(socket: TLSSocket): boolean {
  const handle = (socket as unknown as Verifier)._handle
  if (typeof handle?.verifyError !== 'function' || !socket.getPeerX509Certificate()) return false
  return !handle.verifyError()
}
