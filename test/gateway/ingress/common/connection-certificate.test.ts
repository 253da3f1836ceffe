// Has to come first: what the X.509 library is built on looks for it at import.
import 'reflect-metadata'
import { webcrypto, X509Certificate } from 'node:crypto'
import * as x509 from '@peculiar/x509'
import { describe, expect, it } from 'vitest'
import { ConnectionCertificate } from '../../../../src/gateway/ingress/common/connection-facts.ts'
import { VARIABLES } from '../../../../src/policy/vocabulary/variables.ts'
import { createExchange, evaluate } from '../../../helpers/policy-exchange.ts'

const RSA = { modulusLength: 2_048, publicExponent: new Uint8Array([1, 0, 1]) }

type Algorithm = x509.X509CertificateCreateSelfSignedParams['signingAlgorithm']

async function certificateOf(
  algorithm: Algorithm & object,
  extensions: readonly x509.Extension[] = [],
): Promise<X509Certificate> {
  x509.cryptoProvider.set(webcrypto)
  const keys = await webcrypto.subtle.generateKey({ ...RSA, ...algorithm }, true, [
    'sign',
    'verify',
  ])
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: '01',
    name: 'CN=a',
    keys: keys as webcrypto.CryptoKeyPair,
    signingAlgorithm: algorithm,
    extensions: [...extensions],
  })
  return new X509Certificate(certificate.toString('pem'))
}

/** Self-signed with Ed448, which has no name. */
const ED448 = [
  'MIIBdzCB+KADAgECAhQa4IiDBPnY4TZakLNFz3XQMs0qvjAFBgMrZXEwDDEKMAgGA1UEAwwBYTAeFw0yNjExMjAyMDIy',
  'NTdaFw0zNjExMTcyMDIyNTdaMAwxCjAIBgNVBAMMAWEwQzAFBgMrZXEDOgCogSkMb+ZMy4qpTDXVc8/LDA8Ip+Ua/+a3',
  'oWmZS1zwdtotdL1f1pyNOeW2ukYqz5n4tJkjwPVYtYCjUzBRMB0GA1UdDgQWBBTbmz/3VtKrwP/JkViM2/K2oDH/EzAf',
  'BgNVHSMEGDAWgBTbmz/3VtKrwP/JkViM2/K2oDH/EzAPBgNVHRMBAf8EBTADAQH/MAUGAytlcQNzAO6kY24ZtOuB64nK',
  'I+chzD12jkUaNjx0XglrtgeYAlu1CAxvT9/XSiQFFxI+wkuNlYTr+xKF7j2pAEFYgtC3N8O3mA/RqhyRlOTwGgB2uoQ8',
  'g19lxmqVsLfDd/3WP+2fU10Mev+HSb8XpgaPJ50pB8Y+AA==',
].join('')

const ECDSA = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

describe('the signature algorithm of a certificate', () => {
  it.each([
    ['SHA1-RSA', { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-1' }],
    ['SHA256-RSA', { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }],
    ['SHA384-RSA', { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-384' }],
    ['SHA512-RSA', { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-512' }],
    ['SHA256-RSAPSS', { name: 'RSA-PSS', hash: 'SHA-256', saltLength: 32 }],
    ['ECDSA-SHA256', ECDSA],
    ['ECDSA-SHA384', { name: 'ECDSA', namedCurve: 'P-384', hash: 'SHA-384' }],
    ['ECDSA-SHA512', { name: 'ECDSA', namedCurve: 'P-521', hash: 'SHA-512' }],
    ['Ed25519', { name: 'Ed25519' }],
  ])('is %s', async (name, algorithm) => {
    const certificate = new ConnectionCertificate(await certificateOf(algorithm))
    expect(certificate.signatureAlgorithm).toBe(name)
  })
})

describe('a signature algorithm without a name', () => {
  it('is told by its OID', () => {
    const certificate = new X509Certificate(Buffer.from(ED448, 'base64'))
    expect(new ConnectionCertificate(certificate).signatureAlgorithm).toBe('1.3.101.113')
  })
})

describe('the extensions of a certificate', () => {
  it('are as they stand in it', async () => {
    const own = new x509.Extension('1.2.3.4', true, Buffer.from('0c03616263', 'hex'))
    const usage = new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.clientAuth])
    const { extensions } = new ConnectionCertificate(await certificateOf(ECDSA, [own, usage]))
    expect(extensions).toEqual([
      { id: '1.2.3.4', critical: true, value: new Uint8Array(Buffer.from('0c03616263', 'hex')) },
      {
        id: '2.5.29.37',
        critical: false,
        value: new Uint8Array(Buffer.from('300a06082b06010505070302', 'hex')),
      },
    ])
  })

  it('are there when what they hold is not what their names promise', async () => {
    const odd = ['2.5.29.17', '2.5.29.19', '2.5.29.15', '2.5.29.32'].map(
      (id) => new x509.Extension(id, false, Buffer.from('ff', 'hex')),
    )
    const certificate = new ConnectionCertificate(await certificateOf(ECDSA, odd))
    expect(certificate.extensions).toHaveLength(4)
    expect(certificate.signatureAlgorithm).toBe('ECDSA-SHA256')
  })

  it('are none in a certificate without', async () => {
    expect(new ConnectionCertificate(await certificateOf(ECDSA)).extensions).toEqual([])
  })
})

describe('a certificate that cannot be decoded', () => {
  it('has neither, and breaks nothing', async () => {
    const { raw } = await certificateOf(ECDSA)
    for (const bytes of [
      Buffer.alloc(0),
      Buffer.from('30', 'hex'),
      raw.subarray(0, 40),
      raw.fill(7),
    ]) {
      const certificate = new ConnectionCertificate({ raw: bytes } as X509Certificate)
      expect([certificate.extensions, certificate.signatureAlgorithm]).toEqual([
        undefined,
        undefined,
      ])
    }
  })

  it('is one whose variables have no value, and nobody falls over', async () => {
    const x509 = await certificateOf(ECDSA)
    const odd = { x509, extensions: undefined, signatureAlgorithm: undefined }
    const tls = { version: 'TLSv1.3', cipherSuite: '', serverName: '', alpn: '' }
    const connection = { tls: { ...tls, clientCertificate: odd, serverCertificate: odd } }
    expect(evaluate('has(conn.tls.client.extensions)', { connection })).toBe(false)
    expect(() => evaluate('conn.tls.client.signature_algorithm', { connection })).toThrow(
      'there is no conn.tls.client.signature_algorithm',
    )
    const names = Array.from(VARIABLES.keys()).filter((name) => name.startsWith('conn.tls.'))
    expect(names.length).toBeGreaterThan(40)
    for (const name of names) evaluate(`has(${name})`, { connection })
    expect(createExchange({ connection }).connection.tls?.clientCertificate).toBe(odd)
  })
})
