import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ListenAddress } from '../../../src/base/listen-address.ts'
import { checkUpload } from '../../../src/gateway/certificates/uploaded-certificate.ts'
import type { Gateway } from '../../../src/gateway/gateway.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { type MadeCertificate, makeCertificate } from '../../helpers/made-certificate.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

async function store({ parts }: Gateway, { certPem, keyPem }: MadeCertificate, id: string) {
  const { database, tlsCertificates, seal } = parts
  const item = { id, ownerId: null, description: '', metadata: '', createdAt: Date.now() }
  const issued = checkUpload({ certPem, keyPem }, Date.now())
  await database.change(() => {
    const sealedKey = seal.seal(issued.keyPem, { certificateId: id })
    tlsCertificates.insert({ ...item, certPem: issued.certPem, sealedKey })
  })
  return id
}

async function open({ port }: ListenAddress, servername: string) {
  const socket = connect({ port, host: '127.0.0.1', servername, rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  return socket
}

async function serialAt(address: ListenAddress, servername: string) {
  const socket = await open(address, servername)
  const { serialNumber } = socket.getPeerCertificate()
  socket.destroy()
  return serialNumber.toLowerCase()
}

/** A part of the key that no other key has. */
const keyPartOf = ({ keyPem }: MadeCertificate) => keyPem.split('\n')[1]?.slice(-30) ?? ''

/** Files of a data directory, and what is in them. */
function contentOf(folder: string): string {
  const files = readdirSync(folder, { withFileTypes: true }).filter((it) => it.isFile())
  return files.map(({ name }) => readFileSync(join(folder, name), 'latin1')).join('')
}

const serialOf = ({ certificate }: MadeCertificate) => certificate.serialNumber

describe('a domain with an uploaded certificate', () => {
  it('is served with it at once, replaced without a cut, and after a restart', async () => {
    const { gateway, addresses, dataDir, authtoken } = await startGateway()
    const { registrar } = gateway.parts
    const names = ['*.shop.test', 'cam.shop.test']
    const first = await makeCertificate({ names })
    const second = await makeCertificate({ names })
    const domain = await registrar.reserve({ domain: '*.shop.test' })
    await registrar.update(domain, { certificateId: await store(gateway, first, 'cert_1') })
    expect(await serialAt(addresses.https, 'cam.shop.test')).toBe(serialOf(first))
    const socket = await open(addresses.https, 'cam.shop.test')
    await registrar.update(domain, { certificateId: await store(gateway, second, 'cert_2') })
    expect(await serialAt(addresses.https, 'cam.shop.test')).toBe(serialOf(second))
    socket.write('GET / HTTP/1.1\r\nhost: cam.shop.test\r\n\r\n')
    const [answer] = await once(socket, 'data')
    expect(String(answer)).toContain('HTTP/1.1 404')
    socket.destroy()
    // A name with a reservation of its own has the certificate of that reservation.
    await registrar.reserve({ domain: 'own.shop.test', authority: 'gateway' })
    await eventually(async () => {
      expect(await serialAt(addresses.https, 'own.shop.test')).not.toBe(serialOf(second))
    })
    expect(contentOf(dataDir)).not.toContain(keyPartOf(second))
    await gateway.stop()
    expect(contentOf(dataDir)).toContain('cert_2')
    expect(contentOf(dataDir)).not.toContain(keyPartOf(second))
    const again = await startGateway({ dataDir, authtoken, provisions: false })
    expect(await serialAt(again.addresses.https, 'cam.shop.test')).toBe(serialOf(second))
    const { registrar: other, domains } = again.gateway.parts
    const kept = domains.get(domain.id)
    if (kept) await other.update(kept, { certificateId: null })
    expect(await serialAt(again.addresses.https, 'cam.shop.test')).not.toBe(serialOf(second))
  })
})

describe.skipIf(!hasPostgres)('an uploaded certificate at several gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('is served by all of them, also by a new one', async () => {
    const address = await postgres.database()
    const cluster = GatewayCluster.open(address, 60_000)
    const one = await cluster.start()
    const two = await cluster.start({ authtoken: one.authtoken })
    const made = await makeCertificate({ names: ['shop.test'] })
    const id = await store(one.gateway, made, 'cert_1')
    await one.gateway.parts.registrar.reserve({ domain: 'shop.test', certificateId: id })
    await eventually(async () => {
      expect(await serialAt(two.addresses.https, 'shop.test')).toBe(serialOf(made))
    })
    const three = await cluster.start({ authtoken: one.authtoken })
    expect(await serialAt(three.addresses.https, 'shop.test')).toBe(serialOf(made))
    const tables = await postgres.query(
      "SELECT query_to_xml(format('SELECT * FROM %I', tablename), true, false, '') AS rows FROM pg_tables WHERE schemaname = 'public'",
      address.database,
    )
    const kept = [JSON.stringify(tables), contentOf(one.dataDir), contentOf(three.dataDir)]
    for (const content of kept) {
      expect(content).toContain('cert_1')
      expect(content).not.toContain(keyPartOf(made))
    }
  })
})
