import { statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { makeCertificate } from '../../../helpers/made-certificate.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

async function openApi() {
  const api = await startManagementApi()
  const now = api.clock.now()
  const valid = { notBefore: now - 86_400_000, notAfter: now + 90 * 86_400_000 }
  const upload = async (names = ['shop.test'], more = {}) => {
    const { certPem, keyPem } = await makeCertificate({ names, ...valid })
    const body = { certificate_pem: certPem, private_key_pem: keyPem, ...more }
    const created = await api.call('POST', '/tls_certificates', { body })
    return { ...created.body, status: created.status, keyPem }
  }
  return { ...api, upload }
}

describe('TLS certificates', () => {
  it('are created, listed, changed and deleted, and never show their key', async () => {
    const { call, upload, folder, captured } = await openApi()
    const { status, keyPem, ...created } = await upload(['shop.test', '*.shop.test'], {
      ...{ description: 'shop', metadata: 'm' },
    })
    expect(status).toBe(201)
    expect(created).toMatchObject({
      id: expect.stringMatching(/^cert_[0-9A-Za-z]{27}$/),
      description: 'shop',
      subject_common_name: 'test',
      subject_alternative_names: { dns_names: ['shop.test', '*.shop.test'], ips: [] },
      key_usages: ['digital-signature'],
      extended_key_usages: ['server-auth'],
      private_key_type: 'ecdsa',
      issuer_common_name: 'test',
    })
    const { id } = created
    const changed = await call('PATCH', `/tls_certificates/${id}`, {
      body: { description: 'both' },
    })
    expect(changed.body).toEqual({ ...created, description: 'both' })
    const list = await call('GET', '/tls_certificates')
    expect(list.body.tls_certificates).toEqual([changed.body])
    const secret = keyPem.split('\n')[1] ?? ''
    const trail = await call('GET', '/audit')
    for (const shown of [created, list.body, trail.body]) {
      expect(JSON.stringify(shown)).not.toContain(secret)
    }
    expect(captured.text()).not.toContain(secret)
    // Only the database has it, which only its owner reads.
    expect(statSync(join(folder, 'gateway.db')).mode & 0o777).toBe(0o600)
    expect((await call('DELETE', `/tls_certificates/${id}`)).status).toBe(204)
    expect((await call('GET', `/tls_certificates/${id}`)).status).toBe(404)
  })

  it('are refused with a malformed extension, and listed and deleted if they are stored', async () => {
    const { call, upload, database, tlsCertificates: store, clock } = await openApi()
    const now = clock.now()
    const dates = { notBefore: now - 86_400_000, notAfter: now + 86_400_000 }
    const odd = await makeCertificate({ names: ['shop.test'], malformed: '2.5.29.32', ...dates })
    const body = { certificate_pem: odd.certPem, private_key_pem: odd.keyPem }
    const refused = await call('POST', '/tls_certificates', { body })
    expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_NGROK_215'])
    expect(refused.body.msg).toContain('certificate_pem has a malformed extension')
    const { id } = await upload()
    const item = store.get(id)
    if (!item) throw new Error('no certificate')
    await database.change(() => store.replace({ ...item, certPem: odd.certPem }))
    const list = await call('GET', '/tls_certificates')
    expect(list.body.tls_certificates).toMatchObject([{ id, subject_common_name: 'test' }])
    expect((await call('DELETE', `/tls_certificates/${id}`)).status).toBe(204)
  })

  it('are assigned to domains that they cover, and cannot be deleted then', async () => {
    const { call, upload } = await openApi()
    const { id } = await upload()
    const body = { domain: 'shop.test', certificate_id: id }
    const domain = (await call('POST', '/reserved_domains', { body })).body
    expect(domain.certificate).toMatchObject({ id })
    const refused = await call('DELETE', `/tls_certificates/${id}`)
    expect(refused.status).toBe(409)
    expect(refused.body).toMatchObject({
      error_code: 'ERR_NGROK_853',
      msg: expect.stringContaining('in use by shop.test'),
    })
    const other = (await upload(['other.test'])).id
    const path = `/reserved_domains/${domain.id}`
    const patch = (change: object) => call('PATCH', path, { body: change })
    expect((await patch({ certificate_id: other })).body.msg).toContain('does not cover shop.test')
    expect((await patch({ certificate_id: 'cert_none' })).body.msg).toContain('does not exist')
    const policy = { authority: 'gateway' }
    const both = await patch({ certificate_id: id, certificate_management_policy: policy })
    expect(both.body.msg).toContain('not both')
    const second = (await upload()).id
    expect((await patch({ certificate_id: second })).body.certificate.id).toBe(second)
    expect((await call('DELETE', `/tls_certificates/${id}`)).status).toBe(204)
    // A policy takes its place, and so does a detachment.
    expect((await patch({ certificate_management_policy: policy })).body.certificate).toBeNull()
    await patch({ certificate_id: second })
    expect((await call('DELETE', `${path}/certificate`)).status).toBe(204)
    expect((await call('GET', path)).body.certificate).toBeNull()
    expect((await call('DELETE', `/tls_certificates/${second}`)).status).toBe(204)
  })

  it('are known to their account alone', async () => {
    const { call, upload, issuer } = await openApi()
    const users = [
      await issuer.createBotUser({ name: 'a' }),
      await issuer.createBotUser({ name: 'b' }),
    ]
    const [a = '', b = ''] = await Promise.all(
      users.map(
        async ({ id }) => (await issuer.createApiKey({ ownerId: id, isOwnerOnly: true })).token,
      ),
    )
    const { id } = await upload(['shop.test'], { owner_id: users[0]?.id })
    expect((await call('GET', `/tls_certificates/${id}`, { key: a })).status).toBe(200)
    expect((await call('GET', `/tls_certificates/${id}`, { key: b })).status).toBe(404)
    const body = { domain: 'shop.test', certificate_id: id }
    const taken = await call('POST', '/reserved_domains', { key: b, body })
    expect(taken.body.msg).toBe(`The TLS certificate ${id} does not exist.`)
    expect((await call('POST', '/reserved_domains', { key: a, body })).status).toBe(201)
    // The certificate stays with the gateway's owner when the account is deleted, as the domain does.
    if (users[0]) await issuer.deleteBotUser(users[0])
    expect((await call('GET', `/tls_certificates/${id}`)).body.owner_id).toBeUndefined()
  })

  it('are limited for each bot user', async () => {
    const { call, tlsCertificates, database, issuer, clock, upload } = await openApi()
    const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
    const { id } = await upload()
    const item = tlsCertificates.get(id)
    if (!item) throw new Error('no certificate')
    await database.change(() => {
      for (let n = 0; n < 100; n += 1) {
        tlsCertificates.insert({ ...item, id: `cert_${n}`, ownerId, createdAt: clock.now() })
      }
    })
    const more = await upload(['shop.test'], { owner_id: ownerId })
    expect(more).toMatchObject({ status: 409, error_code: 'ERR_NGROK_18021' })
    expect((await call('GET', '/tls_certificates?limit=1')).status).toBe(200)
  })
})
