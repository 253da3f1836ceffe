import { createHash, createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { isDeepStrictEqual } from 'node:util'
import * as z from 'zod'
import {
  CLOSE,
  type ClientCertificates,
  CONTINUE,
  NO_ERROR,
  type Outcome,
  refuse,
  type TlsEnding,
  type TlsTerms,
} from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { plainHost } from '../exchange/request-path.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { type ActionContext, type ConfigPath, defineAction } from './action.ts'

const MAX_AUTHORITIES = 100
const MAX_PEM = 65_536
const REFERENCE = /^ca_\w{1,64}$/
const CERTIFICATES = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g
/** Its key was deleted. */
const EXAMPLE_AUTHORITY = `-----BEGIN CERTIFICATE-----
MIIBkTCCATegAwIBAgIUGNlbJQ/+oHt+XsF1KXsANsitArowCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKRXhhbXBsZSBDQTAgFw0yNjExMjIxMDU5MTJaGA8yMTI2MTAy
OTEwNTkxMlowFTETMBEGA1UEAwwKRXhhbXBsZSBDQTBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABPXmpxtjOuXc1Vx7MUWzTS3CCgOldDBvWmghti9mtG5zbr9N6ZTS
8LudooRsPhg/m9Ck8e1gxAzh14xpcZRVvx+jYzBhMB0GA1UdDgQWBBQ1JB1o/e60
yMsi+dPW+9xVExpFPjAfBgNVHSMEGDAWgBQ1JB1o/e60yMsi+dPW+9xVExpFPjAP
BgNVHRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwIBBjAKBggqhkjOPQQDAgNIADBF
AiA5Nr4p+aIabTGexo9vrxwsLbz5BqgR26eoJ1mXIJbAigIhAMkEvP6DpVAoWC7J
y8VALWxj3YRcJ8w8xq1h+dRUzWVn
-----END CERTIFICATE-----
`

const version = z.enum(['1.2', '1.3'])
const pem = z.string().min(1).max(MAX_PEM)
const config = z.strictObject({
  min_version: version.default('1.2'),
  max_version: version.default('1.3'),
  server_certificate: pem.optional(),
  server_private_key: pem.optional(),
  mutual_tls_certificate_authorities: z.array(pem).max(MAX_AUTHORITIES).default([]),
  mutual_tls_verification_strategy: z
    .enum(['require-and-verify', 'require-any', 'request'])
    .optional(),
})
type Config = z.output<typeof config>

const MISDIRECTED = refuse(
  421,
  'ERR_GATEWAY_MISDIRECTED',
  'The connection does not match the endpoint. Open a new TLS connection with its host name.',
)

/**
 * Ends TLS at the gateway, with the certificate of the domain or of the endpoint. With authorities, it
 * requests certificates of clients. Authorities are PEM, or ids of certificate authorities of the gateway.
 */
export const terminateTls = defineAction({
  type: 'terminate-tls',
  phases: ['on_tcp_connect'],
  config,
  fields: {
    min_version: 'Lowest TLS version.',
    max_version: 'Highest TLS version.',
    server_certificate:
      'Certificate in PEM, which may include its chain. Default: the certificate of the domain.',
    server_private_key:
      'Private key of server_certificate, in PEM and unencrypted. Give both or none.',
    mutual_tls_certificate_authorities:
      'CAs that sign client certificates: PEM, or ids of certificate authorities (ca_…). With a CA, clients need a certificate.',
    mutual_tls_verification_strategy:
      'require-and-verify, the default with a CA: certificate of a CA; require-any: any certificate; request: optional.',
  },
  example: {
    min_version: '1.2',
    max_version: '1.3',
    mutual_tls_certificate_authorities: [EXAMPLE_AUTHORITY],
    mutual_tls_verification_strategy: 'require-and-verify',
  },
  results: {
    cipher_suite: 'string',
    sni: 'string',
    version: 'string',
    'error.code': 'string',
    'error.message': 'string',
  },
  build(config, context) {
    const terms = termsOf(config, context)
    return (exchange) => {
      const ending = exchange.endTls?.(terms()) ?? 'otherwise'
      return ending instanceof Promise
        ? ending.then((settled) => follow(settled, exchange))
        : follow(ending, exchange)
    }
  },
})

function follow(ending: TlsEnding, { connection, results }: PolicyExchange): Outcome {
  if (ending === 'failed') return CLOSE
  if (ending === 'otherwise') return MISDIRECTED
  results.set('terminate_tls', {
    cipher_suite: connection.tls?.cipherSuite ?? '',
    sni: plainHost(connection.tls?.serverName ?? ''),
    version: connection.tls?.version.replace(/^TLSv/, '') ?? '',
    error: NO_ERROR,
  })
  return CONTINUE
}

/** The terms as they are now. They stay the same object until an authority changes. */
function termsOf(config: Config, context: ActionContext): () => TlsTerms {
  if (config.min_version > config.max_version) {
    const sentence = 'min_version must not be above max_version.'
    context.problem('outOfRange', ['min_version'], sentence)
  }
  const authoritiesNow = authoritiesOf(config, context)
  const fixed = {
    minVersion: `TLSv${config.min_version}`,
    maxVersion: `TLSv${config.max_version}`,
    own: ownOf(config, context),
    clientCertificates: clientCertificatesOf(config, context),
  } as const
  let known: TlsTerms | undefined
  return () => {
    const authorities = authoritiesNow()
    if (known && isDeepStrictEqual(known.authorities, authorities)) return known
    const terms = { ...fixed, authorities }
    const id = createHash('sha256').update(JSON.stringify(terms)).digest('hex')
    known = { id, ...terms }
    return known
  }
}

function clientCertificatesOf(config: Config, context: ActionContext): ClientCertificates {
  const { mutual_tls_verification_strategy: strategy } = config
  const hasAuthorities = config.mutual_tls_certificate_authorities.length > 0
  if (!hasAuthorities && strategy === 'require-and-verify') {
    const sentence = 'mutual_tls_certificate_authorities is required to verify certificates.'
    context.problem('empty', ['mutual_tls_verification_strategy'], sentence)
  }
  return strategy ?? (hasAuthorities ? 'require-and-verify' : 'none')
}

/** Returns a function that reads the certificates of all authorities. It throws EvaluationError. */
function authoritiesOf(config: Config, context: ActionContext): () => string[] {
  const sources = config.mutual_tls_certificate_authorities.map((text, index) => {
    const at = ['mutual_tls_certificate_authorities', index]
    if (REFERENCE.test(text)) {
      checkReference(text, at, context)
      return () => readAuthority(text, context)
    }
    const certificates = certificatesIn(text, at, context)
    if (certificates.some((certificate) => !new X509Certificate(certificate).ca)) {
      const sentence = 'The certificate is not a CA certificate (basicConstraints CA:TRUE).'
      context.problem('badValue', at, sentence)
    }
    return () => certificates
  })
  return () => sources.flatMap((read) => read())
}

/** A device that checks a policy does not know the authorities of the gateway. */
function checkReference(id: string, at: ConfigPath, context: ActionContext): void {
  const { certificateAuthority } = context.reach
  if (!certificateAuthority) {
    const sentence = `The certificate authority ${id} can only be checked by the gateway.`
    context.problem('policyReference', at, sentence, { severity: 'warning' })
  } else if (certificateAuthority(id) === undefined) {
    const sentence = `The account has no certificate authority ${id}.`
    context.problem('policyReference', at, sentence)
  }
}

/** Read at each connection. A deleted authority lets no connection pass. */
function readAuthority(id: string, { reach }: ActionContext): string[] {
  const pem = reach.certificateAuthority?.(id)
  if (pem === undefined) throw new EvaluationError(`there is no certificate authority ${id}`)
  return pem.match(CERTIFICATES) ?? []
}

function ownOf(config: Config, context: ActionContext): TlsTerms['own'] {
  const { server_certificate: certPem, server_private_key: keyPem } = config
  if (certPem === undefined && keyPem === undefined) return undefined
  if (certPem === undefined || keyPem === undefined) {
    const [given, missing] =
      certPem === undefined
        ? ['server_private_key', 'server_certificate']
        : ['server_certificate', 'server_private_key']
    if (!context.isMended([missing])) {
      context.problem('empty', [given], `${missing} is required too.`)
    }
    return undefined
  }
  const [leaf] = certificatesIn(certPem, ['server_certificate'], context)
  if (leaf !== undefined) checkKey(leaf, { certPem, keyPem }, context)
  return { certPem, keyPem }
}

/** Messages never contain the text: an error must not reveal a key. */
function checkKey(
  leaf: string,
  { certPem: cert, keyPem: key }: NonNullable<TlsTerms['own']>,
  context: ActionContext,
): void {
  const at = ['server_private_key']
  if (!isConstant(key, at, context)) return
  try {
    if (!new X509Certificate(leaf).checkPrivateKey(createPrivateKey(key))) {
      context.problem('badValue', at, 'The key does not match the certificate.')
      return
    }
  } catch {
    context.problem('badValue', at, 'The text is not an unencrypted private key in PEM format.')
    return
  }
  try {
    createSecureContext({ cert, key })
  } catch {
    const sentence = 'The certificate is damaged, or its key is too weak for TLS.'
    context.problem('badValue', ['server_certificate'], sentence)
  }
}

/** Each for itself. */
function certificatesIn(text: string, at: ConfigPath, context: ActionContext): string[] {
  if (!isConstant(text, at, context)) return []
  try {
    const certificates = text.match(CERTIFICATES) ?? []
    for (const certificate of certificates) new X509Certificate(certificate)
    if (certificates.length > 0) return certificates
  } catch {}
  context.problem('badValue', at, 'The text is not a certificate in PEM format.')
  return []
}

function isConstant(text: string, at: ConfigPath, context: ActionContext): boolean {
  if (!text.includes('${')) return true
  const sentence =
    'Interpolation is not supported here, because the value is read before a connection exists.'
  context.problem('interpolation', at, sentence)
  return false
}
