import { describe, expect, it } from 'vitest'
import { domainIn, TunnelSpecSchema } from '../../src/agent/tunnel.ts'

const GOOD = { protocol: 'http', forwards_to: ':8001', domain: 'Device1.Site.Test' }

async function complaint(change: object): Promise<string | undefined> {
  const { error } = await TunnelSpecSchema.safeParseAsync({ ...GOOD, ...change })
  return error?.issues[0] && `${error.issues[0].path.join('.')} ${error.issues[0].message}`
}

describe('TunnelSpecSchema', () => {
  it('reads a body into its normal form', () => {
    expect(TunnelSpecSchema.parse(GOOD)).toEqual({
      protocol: 'http',
      forwardsTo: 'localhost:8001',
      domain: 'device1.site.test',
      policy: null,
    })
  })

  it('takes a policy as it is, and null for none', () => {
    const policy = { on_http_request: [{ actions: [] }] }
    expect(TunnelSpecSchema.parse({ ...GOOD, policy }).policy).toBe(policy)
    expect(TunnelSpecSchema.parse({ ...GOOD, policy: null }).policy).toBeNull()
  })

  it('reads a policy from JSON text', () => {
    const read = TunnelSpecSchema.parse({ ...GOOD, policy: '{"on_http_request": []}' })
    expect(read.policy).toEqual({ on_http_request: [] })
  })

  it.each([
    ['gw.example.com:20017', 'gw.example.com:20017'],
    ['GW.example.com:1', 'gw.example.com:1'],
    ['127.0.0.1:65535', '127.0.0.1:65535'],
    ['[::1]:22', '[::1]:22'],
    ['', ''],
    [undefined, ''],
  ])('takes the address %j of a tcp tunnel', (domain, expected) => {
    const { domain: _domain, ...rest } = GOOD
    const body = { ...rest, protocol: 'tcp', ...(domain !== undefined && { domain }) }
    expect(TunnelSpecSchema.parse(body)).toMatchObject({ protocol: 'tcp', domain: expected })
  })

  it.each(['http', 'tls'])('takes an empty domain of a %s tunnel, or none', (protocol) => {
    const { domain: _domain, ...rest } = { ...GOOD, protocol }
    for (const body of [rest, { ...rest, domain: '' }]) {
      expect(TunnelSpecSchema.parse(body)).toMatchObject({ protocol, domain: '' })
    }
  })

  it.each([
    [{ protocol: 'tcp' }, /^domain must be host:port/],
    [{ protocol: 'tcp', domain: 'a.test:0' }, /^domain must be/],
    [{ protocol: 'tcp', domain: '*.a.test:1' }, /^domain must be/],
    [{ protocol: 'tls', domain: 'a.test:443' }, /^domain must be a domain name/],
    [{ protocol: 'ftp' }, /^protocol must be http/],
    [{ protocol: undefined }, /^protocol /],
    [{ forwards_to: 'http://a:1' }, /^forwards_to must be host:port/],
    [{ forwards_to: 8001 }, /^forwards_to /],
    [{ forwards_to: undefined }, /^forwards_to /],
    [{ domain: undefined }, /^domain /],
    [{ domain: 'localhost' }, /^domain must be a domain name/],
    [{ domain: 'https://a.test' }, /^domain must be/],
    [{ domain: 'a.test:80' }, /^domain must be/],
    [{ domain: 'a..test' }, /^domain must be/],
    [{ domain: '-a.test' }, /^domain must be/],
    [{ domain: 'a_b.test' }, /^domain must be/],
    [{ domain: 'a.*.test' }, /^domain must be/],
    [{ domain: '1.2.3.4' }, /^domain must be/],
    [{ domain: `${'a'.repeat(64)}.test` }, /^domain must be/],
    [{ domain: `${'a.'.repeat(126)}test` }, /^domain must be/],
    [{ policy: '[]' }, /^policy must contain an object/],
    [{ policy: 'a: b' }, /^policy must be JSON: Unexpected token/],
    [{ policy: [] }, /^policy must be a JSON object/],
    [{ upstream: { http2: 'yes' } }, /^upstream\.http2 must be true or false/],
    [{ upstream: { verify_tls: 'no' } }, /^upstream\.verify_tls must be true or false/],
    [{ upstream: { verify_tls: false } }, /^upstream\.verify_tls is only for https:\/\/ upstreams/],
    [
      { protocol: 'tcp', domain: 'a.test:1', forwards_to: 'https://localhost:1' },
      /^forwards_to https:\/\/ is only for http tunnels/,
    ],
    [
      { protocol: 'tcp', domain: 'a.test:1', upstream: { http2: true } },
      /^upstream\.http2 is only for http tunnels/,
    ],
    [{ name: 'x' }, /Unrecognized key: "name"/],
  ])('refuses %j', async (change, expected) => {
    expect(await complaint(change)).toMatch(expected)
  })

  it('takes a wildcard as first label', async () => {
    expect(await complaint({ domain: '*.site.test' })).toBeUndefined()
  })
})

describe('domainIn', () => {
  it.each([
    ['https://a-b.site.test', 'a-b.site.test'],
    ['https://A-b.site.test:8443', 'a-b.site.test'],
    ['http://a.site.test:8080/', 'a.site.test'],
    ['tls://a.site.test:8443', 'a.site.test'],
    ['tcp://gw.test:20017', 'gw.test:20017'],
    ['tcp://[::1]:20017', '[::1]:20017'],
    [undefined, undefined],
    ['', undefined],
    ['drain:0', undefined],
    ['https://user@a.site.test', undefined],
    ['https://localhost', undefined],
    ['tcp://gw.test', undefined],
  ])('reads %s as %s', (url, domain) => {
    expect(domainIn(url)).toBe(domain)
  })
})
