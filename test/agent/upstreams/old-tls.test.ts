// Has to come first: what the X.509 library is built on looks for it at import.
import 'reflect-metadata'
import { KeyObject, webcrypto } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { TlsOptions } from 'node:tls'
import * as x509 from '@peculiar/x509'
import { describe, expect, it, onTestFinished } from 'vitest'
import { askUpstream } from '../../../src/agent/upstreams/upstream-check.ts'
import type { TlsMinVersion } from '../../../src/agent/upstreams/upstream-options.ts'
import { specOf } from '../../helpers/agent-in-folder.ts'
import { startedOnGateway } from '../../helpers/agent-on-gateway.ts'
import { eventually } from '../../helpers/eventually.ts'
import { publicRequest } from '../../helpers/public-request.ts'

/** A group of 1,024 bits (RFC 2409 6.2), as web servers of 2010 have it. */
const SHORT_GROUP = `-----BEGIN DH PARAMETERS-----
MIGHAoGBAP//////////yQ/aoiFowjTExmKLgNwc0SkCTgiKZ8x0Agu+pjsTmyJR
Sgh5jjQE3e+VGbPNOkMbMCsKbfJfFDdP4TVtbVHCReSFtXZiXn7G9ExC6aY37WsL
/1y29Aa37e44a/taiZ+lrp8kEXxLH+ZJKGZR7OZTgf//////////AgEC
-----END DH PARAMETERS-----
`
const TLS_1_0: TlsOptions = {
  minVersion: 'TLSv1',
  maxVersion: 'TLSv1',
  ciphers: 'ALL:@SECLEVEL=0',
}
const TLS_1_1: TlsOptions = { ...TLS_1_0, minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1' }
const SHORT_KEYS: TlsOptions = {
  maxVersion: 'TLSv1.2',
  ciphers: 'DHE-RSA-AES256-GCM-SHA384:@SECLEVEL=0',
  dhparam: SHORT_GROUP,
}

/** Old devices have RSA keys. */
async function rsaCertificate() {
  const algorithm = {
    name: 'RSASSA-PKCS1-v1_5',
    hash: 'SHA-256',
    publicExponent: new Uint8Array([1, 0, 1]),
    modulusLength: 2_048,
  }
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const cert = await x509.X509CertificateGenerator.createSelfSigned({
    name: 'CN=camera',
    keys,
    signingAlgorithm: algorithm,
  })
  const key = KeyObject.from(keys.privateKey).export({ type: 'pkcs8', format: 'pem' })
  return { cert: cert.toString('pem'), key }
}

async function startService(options: TlsOptions): Promise<number> {
  const { cert, key } = await rsaCertificate()
  const server = createServer({ cert, key, ...options }, (_request, response) =>
    response.end('an old camera'),
  )
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

const ask = (port: number, tlsMinVersion?: TlsMinVersion) =>
  askUpstream({
    target: { host: '127.0.0.1', port, isSecure: true },
    http: { method: 'GET', path: '/', http2: false },
    verifyTls: false,
    tlsMinVersion,
    withinMs: 60_000,
    lookup: undefined,
  })

describe('an upstream with an old TLS', () => {
  it.each([
    ['TLS 1.0', TLS_1_0, ['old-tls', 'answered', 'old-tls', 'old-tls']],
    ['TLS 1.1', TLS_1_1, ['old-tls', 'answered', 'answered', 'old-tls']],
  ] as const)('is named, and asked where that is allowed: %s', async (_name, options, answers) => {
    const port = await startService(options)
    const given = []
    for (const version of [undefined, '1.0', '1.1', '1.2'] as const) {
      given.push(await ask(port, version))
    }
    expect(given).toEqual(answers)
  })

  it('is asked on each Node where its keys are short', async () => {
    const port = await startService(SHORT_KEYS)
    expect([await ask(port), await ask(port, '1.2')]).toEqual(['answered', 'answered'])
  })

  it('is told in the status and to visitors, and served where that is allowed', async () => {
    const on = await startedOnGateway()
    const forwardsTo = `https://127.0.0.1:${await startService(TLS_1_0)}`
    const visit = () =>
      publicRequest({
        ingress: `http://127.0.0.1:${on.addresses.http.port}`,
        host: 'camera.site.test',
      })
    const upstream = { verify_tls: false } as const
    await on.agent.create({ ...specOf('camera', forwardsTo), upstream })
    const { status, headers } = await visit()
    expect([status, headers['ngrok-error-code']]).toEqual([502, 'ERR_GATEWAY_OLD_TLS'])
    await eventually(() =>
      expect(on.agent.list()[0]?.status).toMatchObject({
        upstream: 'old_tls',
        reason: 'upstream',
        remedy: expect.stringContaining('upstream.tls_min_version'),
      }),
    )
    const allowed = { ...upstream, tls_min_version: '1.0' } as const
    await on.agent.replace('camera.site.test', {
      ...specOf('camera', forwardsTo),
      upstream: allowed,
    })
    expect(await visit()).toMatchObject({ status: 200, text: 'an old camera' })
    await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('up'))
  })
})
