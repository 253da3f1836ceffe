import { describe, expect, it } from 'vitest'
import { makeCertificate } from '../../../helpers/made-certificate.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

const DAY_MS = 86_400_000

async function openApi() {
  const api = await startManagementApi()
  const now = api.clock.now()
  const ca = async (wish: Parameters<typeof makeCertificate>[0] = {}) => {
    const dates = { notBefore: now - DAY_MS, notAfter: now + 90 * DAY_MS }
    return makeCertificate({ isCa: true, ...dates, ...wish })
  }
  const create = (pem: string, more: object = {}, key = api.key) =>
    api.call('POST', '/certificate_authorities', { body: { ca_pem: pem, ...more }, key })
  return { ...api, now, ca, create }
}

describe('certificate authorities', () => {
  it('are created, listed, changed and deleted, with the fields of the vendor', async () => {
    const { call, ca, create, baseUrl, now } = await openApi()
    const [first, second] = [await ca({ commonName: 'Press CA' }), await ca()]
    const text = `some text\n${first.certPem}and\n${second.certPem}`
    const { status, body: made } = await create(text, { description: 'press', metadata: 'm' })
    expect(status).toBe(201)
    expect(made).toEqual({
      id: expect.stringMatching(/^ca_[0-9A-Za-z]{27}$/),
      uri: `${baseUrl}/certificate_authorities/${made.id}`,
      created_at: new Date(now).toISOString().replace('.000', ''),
      description: 'press',
      metadata: 'm',
      // Only the certificates.
      ca_pem: first.certPem + second.certPem,
      subject_common_name: 'Press CA',
      not_before: new Date(now - DAY_MS).toISOString().replace('.000', ''),
      not_after: new Date(now + 90 * DAY_MS).toISOString().replace('.000', ''),
      key_usages: ['key-cert-sign'],
      extended_key_usages: [],
    })
    const path = `/certificate_authorities/${made.id}`
    const changed = await call('PATCH', path, { body: { description: 'hall' } })
    expect(changed.body).toEqual({ ...made, description: 'hall' })
    const list = await call('GET', '/certificate_authorities')
    expect(list.body.certificate_authorities).toEqual([changed.body])
    const fixed = await call('PATCH', path, { body: { ca_pem: second.certPem } })
    expect(fixed.status).toBe(400)
    expect((await call('DELETE', path)).status).toBe(204)
    expect((await call('GET', path)).status).toBe(404)
  })

  it('are refused with the fix', async () => {
    const { ca, create, now } = await openApi()
    const good = await ca()
    const cases: readonly (readonly [string, string])[] = [
      [(await ca({ isCa: false, names: ['a.test'] })).certPem, 'a.test in ca_pem is not of a CA'],
      [(await ca({ notAfter: now - DAY_MS, notBefore: now - 2 * DAY_MS })).certPem, 'has expired'],
      [(await ca({ notBefore: now + DAY_MS })).certPem, 'is not valid before'],
      [(await ca({ rsaBits: 1_024 })).certPem, 'is rsa 1024 bits'],
      ['garbage', 'contains no certificate in PEM'],
      [good.certPem + good.keyPem, 'contains a private key'],
      [good.certPem.repeat(11), 'has 11 certificates; at most 10'],
      ['x'.repeat(40_001), 'has 40001 characters'],
      ['-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n', 'cannot be read'],
    ]
    for (const [pem, reason] of cases) {
      const { status, body } = await create(pem)
      expect([status, body.msg]).toEqual([400, expect.stringContaining(reason)])
      expect(JSON.stringify(body)).not.toContain(good.keyPem.split('\n')[1])
    }
  })

  it('are refused with a malformed extension, and listed and deleted if they are stored', async () => {
    const { call, ca, create, database, certificateAuthorities: store } = await openApi()
    // certificatePolicies, issuerAltName, authorityInfoAccess
    const policies = '2.5.29.32'
    const oids = [policies, '2.5.29.18', '1.3.6.1.5.5.7.1.1']
    for (const malformed of oids) {
      const { status, body } = await create((await ca({ malformed })).certPem)
      expect([status, body.error_code]).toEqual([400, 'ERR_NGROK_215'])
      expect(body.msg).toContain('ca_pem has a malformed extension')
    }
    expect((await call('GET', '/certificate_authorities')).body.certificate_authorities).toEqual([])
    const { id } = (await create((await ca()).certPem)).body
    const item = store.get(id)
    if (!item) throw new Error('no authority')
    const { certPem } = await ca({ commonName: 'Odd CA', malformed: policies })
    await database.change(() => store.replace({ ...item, caPem: certPem }))
    const list = await call('GET', '/certificate_authorities')
    expect(list.body.certificate_authorities).toMatchObject([
      { id, subject_common_name: 'Odd CA', key_usages: [] },
    ])
    expect((await call('DELETE', `/certificate_authorities/${id}`)).status).toBe(204)
  })

  it('are deleted with their account, and never shared', async () => {
    const { ca, create, issuer, certificateAuthorities: store, botUsers } = await openApi()
    const user = await issuer.createBotUser({ name: 'a' })
    const { id } = (await create((await ca()).certPem, { owner_id: user.id })).body
    expect(store.pemFor(id, user.id)).toBeDefined()
    await issuer.deleteBotUser(botUsers.get(user.id) ?? user)
    expect(store.pemFor(id, 'another')).toBeUndefined()
    expect(store.get(id)).toBeUndefined()
  })

  it('are known to their account alone, and limited for each', async () => {
    const { call, ca, create, issuer, certificateAuthorities: store, database } = await openApi()
    const users = [
      await issuer.createBotUser({ name: 'a' }),
      await issuer.createBotUser({ name: 'b' }),
    ]
    const keyOf = async (user: { id: string } | undefined) =>
      (await issuer.createApiKey({ ownerId: user?.id ?? null, isOwnerOnly: true })).token
    const [a, b] = [await keyOf(users[0]), await keyOf(users[1])]
    const { certPem } = await ca()
    const { id, owner_id: owner } = (await create(certPem, {}, a)).body
    expect(owner).toBe(users[0]?.id)
    const path = `/certificate_authorities/${id}`
    expect((await call('GET', path, { key: a })).status).toBe(200)
    for (const method of ['GET', 'PATCH', 'DELETE']) {
      const body = method === 'PATCH' ? { body: { description: 'x' } } : {}
      expect((await call(method, path, { key: b, ...body })).status).toBe(404)
    }
    const listed = await call('GET', '/certificate_authorities', { key: b })
    expect(listed.body.certificate_authorities).toEqual([])
    expect((await create(certPem, { owner_id: owner }, b)).status).toBe(403)
    const item = store.get(id)
    if (!item) throw new Error('no authority')
    await database.change(() => {
      for (let n = 1; n < 100; n += 1) store.insert({ ...item, id: `ca_${n}` })
    })
    expect((await create(certPem, {}, a)).body.error_code).toBe('ERR_NGROK_18021')
    expect((await create(certPem, {}, b)).status).toBe(201)
  })
})
