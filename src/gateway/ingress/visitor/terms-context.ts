import { constants } from 'node:crypto'
import { createSecureContext, type SecureContext } from 'node:tls'
import type { TlsTerms } from '../../../policy/exchange/outcome.ts'
import type { ServedCertificate } from '../../certificates/certificate-file.ts'

const ID_CONTEXT_LENGTH = 32

/** They go with the policy that has the terms, and with the certificate. */
const CONTEXTS = new WeakMap<TlsTerms, WeakMap<ServedCertificate, SecureContext>>()

/** What TLS is ended with by the terms of a policy, for a name with this certificate. */
export function termsContext(terms: TlsTerms, certificate: ServedCertificate): SecureContext {
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
