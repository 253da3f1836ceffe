import { describe, expect, it } from 'vitest'
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
  it('compares both records with their targets', async () => {
    const zone: Record<string, string> = {}
    const { call } = await startManagementApi({ dnsServers: [await startDnsServer(zone)] })
    const body = { domain: '*.sitea.test' }
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
