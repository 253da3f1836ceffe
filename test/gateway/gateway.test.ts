import { once } from 'node:events'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { systemClock } from '../../src/base/clock.ts'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import { CertificateAuthority } from '../../src/gateway/certificates/certificate-authority.ts'
import { CERTIFICATE_CHECK_MS } from '../../src/gateway/certificates/domain-certificates.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const { log } = captureLog()

/** Fingerprint of the certificate that a TLS server shows. */
async function shownCertificate(address: ListenAddress): Promise<string | undefined> {
  // The gateway lives in a year of its own, so no client would trust it.
  const socket = connect({ ...address, rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const fingerprint = socket.getPeerX509Certificate()?.fingerprint256
  socket.destroy()
  return fingerprint
}

describe('Gateway', () => {
  it('keeps what it holds to itself', async () => {
    const { dataDir } = await startGateway()
    const files = readdirSync(dataDir, { recursive: true, encoding: 'utf8' })
    expect(files).toEqual(expect.arrayContaining(['ca.key', 'ca.pem', 'server.pem']))
    for (const file of files) {
      const stat = statSync(join(dataDir, file))
      if (stat.isFile()) expect(stat.mode & 0o077, file).toBe(0)
    }
  })

  it('gives its parts the limits of its settings', async () => {
    const { gateway } = await startGateway({
      rateLimits: { maxKeys: 5_000, ipv6Prefix: 32 },
      bufferBytes: 8_388_608,
    })
    const { limits, buffers } = gateway.parts
    expect(limits.maxKeys).toBe(5_000)
    expect(limits.countedIp('2001:db8:1::7')).toBe(limits.countedIp('2001:db8:2::8'))
    expect(buffers.limitBytes).toBe(8_388_608)
  })

  it('is the only one in its folder', async () => {
    const { dataDir } = await startGateway()
    const another = startGateway({ dataDir })
    await expect(another).rejects.toThrow(`Another gateway is using the data directory ${dataDir}`)
  })

  it('says which address is taken', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void taken.close())
    await once(taken, 'listening')
    const { port } = taken.address() as AddressInfo
    const attempt = startGateway({ agentListen: { host: '127.0.0.1', port } })
    await expect(attempt).rejects.toThrow(StartError)
    await expect(attempt).rejects.toThrow(`127.0.0.1:${port}`)
  })

  it('lets policies ask internal endpoints, and no visitor keep them from it', async () => {
    const { gateway, addresses } = await startGateway()
    const open = (url: string, onRequest: object[]) =>
      gateway.parts.cloudEndpoints.create(
        { url, trafficPolicy: JSON.stringify({ on_http_request: onRequest }) },
        { isGranted: true },
      )
    const isRefused =
      "actions.ngrok.http_request.error.code == '' && actions.ngrok.http_request.res.status_code == 403"
    await open('https://check.internal', [
      { expressions: ["conn.client_ip == '127.0.0.1'"], actions: [{ type: 'deny' }] },
      { actions: [{ type: 'custom-response' }] },
    ])
    await open('https://front.site.test', [
      { actions: [{ type: 'http-request', config: { url: 'https://check.internal/' } }] },
      { expressions: [isRefused], actions: [{ type: 'deny', config: { status_code: 418 } }] },
      { actions: [{ type: 'custom-response' }] },
    ])
    const ingress = `http://127.0.0.1:${addresses.http.port}`
    for (const headers of [{}, { 'x-policy-hops': '4' }]) {
      const { status } = await publicRequest({ ingress, host: 'front.site.test', headers })
      expect(status).toBe(418)
    }
  })

  it('serves the certificate that its owner brings, and reads it again', async () => {
    const folder = temporaryFolder()
    const tls = { certPath: join(folder, 'own.pem'), keyPath: join(folder, 'own.key') }
    const ca = await CertificateAuthority.open({ folder, clock: systemClock, log })
    const bring = async () => {
      const { certPem, keyPem } = await ca.issue(['*.site.test'])
      writeFileSync(tls.certPath, certPem)
      writeFileSync(tls.keyPath, keyPem)
    }
    await expect(startGateway({ tls })).rejects.toThrow(tls.certPath)
    await bring()
    const clock = new ManualClock()
    const { gateway } = await startGateway({ tls, clock })
    const context = () => gateway.parts.certificates.served('cam.site.test')
    const first = context()
    expect(gateway.parts.certificates.served(undefined)).toBe(first)
    await clock.advance(CERTIFICATE_CHECK_MS)
    expect(context()).toBe(first)
    await bring()
    await clock.advance(CERTIFICATE_CHECK_MS)
    expect(context()).not.toBe(first)
    const second = context()
    writeFileSync(tls.certPath, 'half a certif')
    await clock.advance(CERTIFICATE_CHECK_MS)
    expect(context()).toBe(second)
  })

  it('renews everything soon after the clock was put right', async () => {
    // Where a machine without a clock of its own begins.
    const clock = new ManualClock(0)
    const { gateway, addresses } = await startGateway({ clock })
    const { certificates } = gateway.parts
    await certificates.coverHost('cam.site.test', null)
    const visitor = certificates.served('cam.site.test')
    const server = await shownCertificate(addresses.agent)
    const ca = readFileSync(addresses.caCertPath, 'utf8')
    clock.stepWall(Date.UTC(2030, 0, 1))
    await clock.advance(10_000)
    await eventually(async () => {
      expect(await shownCertificate(addresses.agent)).not.toBe(server)
      expect(certificates.served('cam.site.test')).not.toBe(visitor)
    })
    expect(readFileSync(addresses.caCertPath, 'utf8')).not.toBe(ca)
  })

  it('renews the certificates of agents and visitors while it runs', async () => {
    const clock = new ManualClock()
    const { gateway, addresses } = await startGateway({ clock })
    const { certificates } = gateway.parts
    await certificates.coverHost('cam.site.test', null)
    const visitor = certificates.served('cam.site.test')
    const server = await shownCertificate(addresses.agent)
    clock.stepWall(61 * 86_400_000)
    await clock.advance(CERTIFICATE_CHECK_MS)
    await eventually(async () => {
      expect(await shownCertificate(addresses.agent)).not.toBe(server)
      expect(certificates.served('cam.site.test')).not.toBe(visitor)
    })
  })
})
