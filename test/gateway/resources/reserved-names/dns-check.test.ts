import { describe, expect, it } from 'vitest'
import { cnameTarget } from '../../../../src/gateway/records/domain-name.ts'
import { DnsCheck } from '../../../../src/gateway/resources/reserved-names/routes.ts'
import { startDnsServer } from '../../../helpers/dns-server.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

describe('DnsCheck', () => {
  it.each([
    ['the right record', { 'cam.site.test': 'x.cname.test' }, ['x.cname.test'], null],
    ['the same in other letters', { 'cam.site.test': 'X.Cname.Test' }, ['x.cname.test'], null],
    ['a record that leads elsewhere', { 'cam.site.test': 'old.test' }, ['old.test'], null],
    ['no record', {}, [], 'ENOTFOUND'],
  ])('reports %s', async (_what, zone, found, error) => {
    const check = new DnsCheck([await startDnsServer(zone)])
    const expected = 'x.cname.test'
    const ok = found.some((name) => name === expected)
    expect(await check.check([{ name: 'cam.site.test', expected }])).toEqual({
      ok,
      records: [{ type: 'CNAME', name: 'cam.site.test', expected, found, ok, error }],
    })
  })

  it('takes the target of earlier versions, too', async () => {
    const check = new DnsCheck([await startDnsServer({ 'cam.site.test': 'x.cname.test' })])
    const record = { name: 'cam.site.test', expected: 'gw.test', earlier: 'x.cname.test' }
    expect((await check.check([record])).ok).toBe(true)
  })

  it('finds the record of a wildcard', async () => {
    const check = new DnsCheck([await startDnsServer({ '*.site.test': 'x.cname.test' })])
    const result = await check.check([{ name: '*.site.test', expected: 'x.cname.test' }])
    expect(result).toMatchObject({ ok: true, records: [{ name: '*.site.test' }] })
  })

  it('says so when no resolver answers', async () => {
    const check = new DnsCheck(['127.0.0.1:1'])
    const { ok, records } = await check.check([{ name: 'cam.site.test', expected: 'x' }])
    expect(ok).toBe(false)
    expect(records[0]?.error).toMatch(/^E(CONNREFUSED|TIMEOUT)$/)
  })
})

describe('the check of a reserved domain', () => {
  it('needs no record for challenges without an ACME authority, and takes the earlier target', async () => {
    const zone: Record<string, string> = {}
    const { call, domains } = await startManagementApi({ dnsServers: [await startDnsServer(zone)] })
    const made = await call('POST', '/reserved_domains', { body: { domain: '*.sitea.test' } })
    const domain = domains.find('*.sitea.test')
    if (!domain) throw new Error('it is not reserved')
    zone['*.sitea.test'] = cnameTarget(domain, 'gateway.test')
    const check = await call('POST', `/reserved_domains/${made.body.id}/check`)
    expect(check.body).toMatchObject({ ok: true, records: [{ name: '*.sitea.test', ok: true }] })
    expect(check.body.records).toHaveLength(1)
  })

  it('compares both records with their targets', async () => {
    const zone: Record<string, string> = {}
    const dnsServers = [await startDnsServer(zone)]
    const { call } = await startManagementApi({ dnsServers, hasAcme: true })
    const policy = { authority: 'letsencrypt', challenge: 'dns-01' }
    const body = { domain: '*.sitea.test', certificate_management_policy: policy }
    const domain = (await call('POST', '/reserved_domains', { body })).body
    const check = async () => (await call('POST', `/reserved_domains/${domain.id}/check`)).body
    expect(await check()).toMatchObject({ ok: false, records: [{ ok: false }, { ok: false }] })
    zone['*.sitea.test'] = domain.cname_target
    expect(await check()).toMatchObject({ ok: false, records: [{ ok: true }, { ok: false }] })
    zone['_acme-challenge.sitea.test'] = domain.acme_challenge_cname_target
    expect(await check()).toEqual({
      ok: true,
      records: [
        {
          type: 'CNAME',
          name: '*.sitea.test',
          expected: domain.cname_target,
          found: [domain.cname_target],
          ok: true,
          error: null,
        },
        {
          type: 'CNAME',
          name: '_acme-challenge.sitea.test',
          expected: domain.acme_challenge_cname_target,
          found: [domain.acme_challenge_cname_target],
          ok: true,
          error: null,
        },
      ],
    })
  })
})
