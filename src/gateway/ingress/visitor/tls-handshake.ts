import { constants } from 'node:crypto'
import { Socket } from 'node:net'
import { createSecureContext, type SecureContext, TLSSocket, type TLSSocketOptions } from 'node:tls'
import type { TlsTerms } from '../../../policy/exchange/outcome.ts'
import type { ServedCertificate } from '../../certificates/certificate-file.ts'
import type { TransportSocket } from '../common/client-socket.ts'

const ID_CONTEXT_LENGTH = 32

/** They go with the policy that has the terms, and with the certificate. */
const CONTEXTS = new WeakMap<TlsTerms, WeakMap<ServedCertificate, SecureContext>>()

/** What TLS is ended with by the terms of a policy, for a name with this certificate. */
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
    // Each of them is an authority by itself, whoever has signed it.
    ...(authorities.length > 0 && { ca: [...authorities], allowPartialTrustChain: true }),
    // A session that is resumed has a certificate that nobody looks at again.
    ...(clientCertificates !== 'none' && { secureOptions: constants.SSL_OP_NO_TICKET }),
    sessionIdContext: id.slice(0, ID_CONTEXT_LENGTH),
  })
}

export interface HandshakeOptions {
  readonly socket: TransportSocket
  readonly certificate: ServedCertificate
  /** Those of a policy; unless given, the gateway's. */
  readonly terms?: TlsTerms | undefined
  /** In the order of preference (RFC 7301). */
  readonly protocols?: readonly string[] | undefined
  /** Called once: whether TLS has come about, in the turn in which it has. */
  onSettled(isAgreed: boolean): void
}

const ADDRESSES = ['remoteAddress', 'remotePort', 'localAddress', 'localPort'] as const

/**
 * TLS over a connection whose reset is one of the transport: `destroy` of a TLSSocket sends a FIN, by
 * which a client that does not look for a close_notify takes a part of a body for the whole.
 */
class SecuredSocket extends TLSSocket {
  readonly #transport: TransportSocket

  constructor(transport: TransportSocket, options: TLSSocketOptions) {
    // Node's types ask for less than it takes: any duplex will do.
    super(transport as Socket, options)
    this.#transport = transport
    // A load balancer has named the visitor: the addresses are not those of the handle.
    if (Object.hasOwn(transport, 'remoteAddress')) {
      for (const name of ADDRESSES) Object.defineProperty(this, name, { value: transport[name] })
    }
  }

  override resetAndDestroy(): this {
    // Node resets a socket that has this mark when TLS destroys it. A reset of the transport itself
    // would free its handle under TLS: the next `destroy` of both would end the process.
    if (this.#transport instanceof Socket) Object.assign(this.#transport, { resetAndClosing: true })
    return this.destroy()
  }
}

/**
 * Ends TLS on a connection. Without an agreement the connection is over: a client that has to have a
 * certificate, and has none that is good, is cut off.
 */
export class Handshake {
  /** What the client says and hears in it. */
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
    // What went wrong with a client is the client's affair; `close` follows.
    secured.on('error', () => {})
    secured.on('close', () => this.#settle(false))
    // Who leaves in the middle of it would be waited for, as half-open connections are.
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

/** Where Node keeps what OpenSSL thinks of a certificate. */
interface Verifier {
  readonly _handle?: { readonly verifyError?: () => Error | null | undefined }
}

/**
 * Whether the client's certificate is signed by an authority, for clients, and good at this time. Node
 * looks at that itself for servers of its own alone.
 */
function isVerified(socket: TLSSocket): boolean {
  const handle = (socket as unknown as Verifier)._handle
  if (typeof handle?.verifyError !== 'function' || !socket.getPeerX509Certificate()) return false
  return !handle.verifyError()
}
