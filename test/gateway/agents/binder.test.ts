import { describe, expect, it } from 'vitest'
import { Binder, type Binding } from '../../../src/gateway/agents/binder.ts'
import { parseBind } from '../../../src/gateway/agents/control-message.ts'
import type { Endpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import { EndpointUrls } from '../../../src/gateway/endpoints/endpoint-host.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { serviceCode } from '../../helpers/service-code.ts'

async function openBinder(ports = { http: 80, https: 443 }) {
  const stores = openGatewayStores()
  await stores.registrar.reserve({ domain: '*.site.test' })
  const { credential } = await stores.issuer.createCredential({})
  const who = { credentialId: credential.id, ownerId: credential.ownerId }
  const binder = new Binder({ ...stores, urls: new EndpointUrls(ports) })
  const judge = (Opts: object, Proto = 'https', Extra: object = {}) =>
    binder.judge(parseBind({ Id: '', Proto, ForwardsTo: 'localhost:1', Opts, Extra }), who)
  const compile = (binding: Binding) => binder.compile(binding, credential.id)
  return { ...stores, credential, binder, judge, compile }
}

describe('Binder', () => {
  it.each([
    ['a b.site.test', 326],
    ['bücher.site.test', 326],
    ['a.*.site.test', 326],
    ['a..site.test', 327],
    ['-a.site.test', 328],
    ['.site.test', 328],
    ['a-.site.test', 329],
    ['ab--c.site.test', 330],
    ['127.0.0.1', 331],
    ['site', 331],
    ['xn--zzzzzzz99999.site.test', 347],
    ['a_b.site.test', 355],
    [`${'a'.repeat(64)}.site.test`, 396],
    [`${'a.'.repeat(130)}site.test`, 397],
    ['cam.elsewhere.test', 319],
  ])('refuses %s with %i', async (Domain, code) => {
    const { judge } = await openBinder()
    expect(serviceCode(() => judge({ Domain }))).toBe(code)
    expect(serviceCode(() => judge({ Hostname: Domain }))).toBe(code)
  })

  it.each([
    ['https', { http: 80, https: 443 }, 'https://cam.site.test'],
    ['http', { http: 80, https: 443 }, 'http://cam.site.test'],
    ['https', { http: 8080, https: 8443 }, 'https://cam.site.test:8443'],
    ['http', { http: 8080, https: 8443 }, 'http://cam.site.test:8080'],
    ['https', { http: 443, https: 80 }, 'https://cam.site.test:80'],
  ])('tells %s with the ports %j: %s', async (protocol, ports, url) => {
    expect((await openBinder(ports)).judge({ Domain: 'CAM.site.test' }, protocol).url).toBe(url)
  })

  it.each([
    ['cam.internal', undefined, undefined],
    ['cam.internal', ['internal'], undefined],
    ['cam.internal', ['public'], 9029],
    ['cam.internal', ['public', 'internal'], 9029],
    ['cam.site.test', ['internal'], 9029],
    ['cam.site.test', ['public'], undefined],
    ['cam.site.test', [], undefined],
    ['cam.site.test', ['kubernetes'], 301],
    ['a.b.c.d.internal', undefined, undefined],
    ['a.b.c.d.e.internal', undefined, 9031],
  ])('judges %s with the bindings %j: %s', async (Domain, Bindings, code) => {
    const { judge } = await openBinder()
    expect(serviceCode(() => judge({ Domain }, 'https', { Bindings }))).toBe(code)
  })

  it.each<[string, string, string]>([
    ['https://cam.site.test', 'https', 'https://cam.site.test'],
    ['https://CAM.site.test:443', 'https', 'https://cam.site.test'],
    ['http://cam.site.test', 'http', 'http://cam.site.test'],
    ['cam.site.test', 'https', 'https://cam.site.test'],
    ['cam.site.test', 'tls', 'tls://cam.site.test'],
    ['https://*.site.test', 'https', 'https://*.site.test'],
    ['https://cam.internal', 'https', 'https://cam.internal'],
    ['tls://plc.site.test', 'tls', 'tls://plc.site.test'],
    ['https://cam.site.test', '', 'https://cam.site.test'],
    ['http://cam.site.test', '', 'http://cam.site.test'],
    ['cam.site.test', '', 'https://cam.site.test'],
  ])('reads the URL %s of a bind for "%s" as %s', async (URL, protocol, url) => {
    const { judge } = await openBinder()
    expect(judge({ URL }, protocol)).toMatchObject({ url, token: '' })
  })

  it.each([
    ['https://', 'https'],
    ['http://', 'http'],
    ['tls://', 'tls'],
    ['', 'https'],
  ])('draws a name for the URL "%s"', async (URL, protocol) => {
    const { judge } = await openBinder()
    const { host, token, url } = judge({ URL }, protocol)
    expect(host).toMatch(/^[a-z]+-[a-z]+-[a-z2-9]{7}\.site\.test$/)
    expect([token.split(' ')[0], url]).toEqual([host, `${protocol || 'https'}://${host}`])
  })

  it.each<[string, string, number]>([
    ['https://cam.site.test:99999', 'https', 9030],
    ['https://cam.site.test:0', 'https', 9030],
    ['https://cam.site.test:', 'https', 9034],
    ['https://cam site.test', 'https', 9034],
    ['https://a:b:c', 'https', 9034],
    ['https://:443', 'https', 9034],
    ['tcp://cam.site.test', 'tcp', 9034],
    ['https://cam.site.test:8443', 'https', 9035],
    ['http://cam.site.test:443', 'http', 9035],
    ['tls://cam.site.test:80', 'tls', 9035],
    ['ftp://cam.site.test', 'https', 9036],
    ['ftp://cam.site.test', '', 9036],
    ['http://cam.site.test', 'https', 9036],
    ['https://invalid@site.test', 'https', 9037],
    ['https://cam.site.test/path', 'https', 9037],
    ['https://cam.site.test/path/', 'https', 9037],
    ['https://cam.site.test?a=b', 'https', 9037],
    ['https://cam.site.test#a', 'https', 9037],
    ['https://cam.site.test/', 'https', 9038],
    ['https://a_b.site.test', 'https', 355],
    ['https://cam.elsewhere.test', 'https', 319],
    ['cam.site.test', 'ssh', 332],
  ])('refuses the URL %s of a bind for %s with %i', async (URL, protocol, code) => {
    const { judge } = await openBinder()
    expect(serviceCode(() => judge({ URL }, protocol))).toBe(code)
  })

  it('shows no password of a URL that it refuses', async () => {
    const { judge } = await openBinder()
    expect(() => judge({ URL: 'https://ann:secret@site.test' })).toThrow(/9037|…@site\.test/)
    expect(() => judge({ URL: 'https://ann:secret@site.test' })).not.toThrow(/secret/)
  })

  it('refuses a URL beside another option that says where', async () => {
    const { judge } = await openBinder()
    const URL = 'https://cam.site.test'
    for (const name of ['Domain', 'Hostname', 'Subdomain', 'Addr']) {
      expect(serviceCode(() => judge({ URL, [name]: 'cam' }))).toBe(301)
    }
  })

  it('wants a name for an internal endpoint', async () => {
    const { judge } = await openBinder()
    expect(serviceCode(() => judge({}, 'https', { Bindings: ['internal'] }))).toBe(9028)
    expect(serviceCode(() => judge({ URL: 'https://' }, 'https', { Bindings: ['internal'] }))).toBe(
      9028,
    )
  })

  it('keeps name and description, and refuses long ones', async () => {
    const { judge } = await openBinder()
    const texts = { Name: 'cam', Description: 'in the hall', Metadata: 'm' }
    expect(judge({}, 'https', texts)).toMatchObject({
      ...{ name: 'cam', description: 'in the hall', metadata: 'm' },
    })
    for (const field of ['Name', 'Description']) {
      expect(serviceCode(() => judge({}, 'https', { [field]: 'x'.repeat(256) }))).toBe(301)
    }
  })

  it.each([
    ['PoolingEnabled', 'AllowsPooling'],
    ['AllowsPooling', 'PoolingEnabled'],
  ])('pools by %s as by %s', async (name) => {
    const { judge } = await openBinder()
    expect(judge({ Domain: 'cam.site.test' }, 'https', { [name]: true }).isPooled).toBe(true)
    expect(judge({ Domain: 'cam.site.test' }, 'https', { [name]: false }).isPooled).toBe(false)
  })

  it('ends TLS with its own certificate when the agent brings none', async () => {
    const { judge } = await openBinder()
    const empty = [{}, { cert: null, key: null }, { cert: '', key: '', sealed_key: '' }]
    for (const TLSTermination of empty) {
      expect(judge({ Domain: 'plc.site.test', TLSTermination }, 'tls').around).toEqual({
        on_tcp_connect: [{ name: 'TLS', actions: [{ type: 'terminate-tls', config: {} }] }],
      })
    }
    const half = { Domain: 'plc.site.test', TLSTermination: { cert: 'UEVN' } }
    expect(serviceCode(() => judge(half, 'tls'))).toBe(301)
  })

  it.each([
    ['Guard', { of: 'tomorrow' }, 301],
    ['Guard', null, undefined],
    ['Guard', '', undefined],
  ])('answers the unknown field %s: %j with %s', async (name, value, code) => {
    const { binder, credential } = await openBinder()
    const who = { credentialId: credential.id, ownerId: null }
    const bind = { Id: '', Proto: 'https', Opts: { Domain: 'cam.site.test' }, [name]: value }
    expect(serviceCode(() => binder.judge(parseBind(bind), who))).toBe(code)
    if (code) expect(() => binder.judge(parseBind(bind), who)).toThrow(name)
  })

  it('lets rules speak of internal names, which have no ingress port', async () => {
    const { judge, issuer, binder } = await openBinder({ http: 8080, https: 8443 })
    expect(judge({ Domain: 'cam.internal' }).url).toBe('https://cam.internal')
    const { id } = (await issuer.createCredential({ acl: ['bind:*.site1.internal'] })).credential
    const ask = (Domain: string) => () =>
      binder.judge(parseBind({ Id: '', Proto: 'https', Opts: { Domain } }), {
        credentialId: id,
        ownerId: null,
      })
    expect(serviceCode(ask('cam.site1.internal'))).toBeUndefined()
    expect(serviceCode(ask('cam.site2.internal'))).toBe(316)
  })

  it('puts a label under the wildcard of the credential', async () => {
    const { judge } = await openBinder()
    expect(judge({ Subdomain: 'Cam' }).host).toBe('cam.site.test')
    expect(serviceCode(() => judge({ Subdomain: 'a_b' }))).toBe(355)
  })

  it('draws names that are not online', async () => {
    const { judge, registry } = await openBinder()
    const hosts = Array.from({ length: 100 }, () => {
      const { host } = judge({})
      registry.add({ protocol: 'https', host } as Endpoint)
      return host
    })
    expect(new Set(hosts).size).toBe(100)
    for (const host of hosts) {
      expect(host).toMatch(/^[a-z]+-[a-z]+-[a-z2-9]{7}\.site\.test$/)
      expect(host).not.toMatch(/-[^.-]*[l01][^.-]*\.site/)
    }
  })

  it('draws another name when the first is online', async () => {
    const { judge, registry } = await openBinder()
    const holdersOf = registry.holdersOf.bind(registry)
    let taken = ''
    registry.holdersOf = (address, ownerId) => {
      if (taken) return holdersOf(address, ownerId)
      taken = address.host
      return [address as Endpoint]
    }
    const { host } = judge({})
    expect(taken).toMatch(/\.site\.test$/)
    expect(host).not.toBe(taken)
  })

  it.each([...['MutualTLSCA', 'FutureShield', 'constructor', '__proto__x']])(
    'refuses %s, which it would have to ignore, unless it is not set',
    async (name) => {
      const { judge } = await openBinder()
      const ask = (value: unknown) =>
        serviceCode(() => judge({ Domain: 'cam.site.test', [name]: value }))
      const more = (value: unknown) =>
        serviceCode(() => judge({ Domain: 'cam.site.test' }, 'https', { [name]: value }))
      for (const set of ['a', true, 1, {}, []]) {
        expect(ask(set)).toBe(301)
        expect(more(set)).toBe(301)
      }
      for (const unset of ['', false, 0, null]) {
        expect(ask(unset)).toBeUndefined()
        expect(more(unset)).toBeUndefined()
      }
    },
  )

  it.each([
    ['Auth', {}],
    ['BasicAuth', { credentials: [] }],
    ['BasicAuth', { credentials: [{ username: 'a', cleartext_password: 'p', realm: 'new' }] }],
    ['CircuitBreaker', { error_threshold: 2 }],
    ['Compression', { level: 9 }],
    ['IPRestriction', { allow_cidrs: 'all' }],
    ['RequestHeaders', { add: ['no colon'] }],
    ['ResponseHeaders', { add: [': no name'] }],
    ['UserAgentFilter', { allow: Array(21).fill('a') }],
    ['WebhookVerification', { provider: 'github' }],
    ['OAuth', {}],
    ['OAuth', { provider: 'github', client_id: '$' + '{vars.id}' }],
    ['OIDC', { client_id: 'id', client_secret: 'secret' }],
    ['OIDC', { issuer_url: 'https://id.test', allow_emails: ['x'.repeat(255)] }],
    ['OIDC', { issuer_url: 'https://id.test', allow_domains: Array(201).fill('a.test') }],
    ['ProxyProto', 3],
    ['ProxyProto', '2'],
    ['ProxyProto', true],
    ['WebsocketTCPConverter', true],
    ['WebsocketTCPConverter', { paths: ['/tcp'] }],
    ['Policy', 'text'],
    ['Policy', { Inbound: [{ Actions: [{ Type: 'deny', Config: '!' }] }] }],
    ['Policy', { Inbound: [], Later: [] }],
  ])('refuses %s as %j, and says where it is wrong', async (name, value) => {
    const { judge } = await openBinder()
    expect(() => judge({ Domain: 'cam.site.test', [name]: value })).toThrow(
      new RegExp(`^The option ${name} cannot be used: .+[.]$`),
    )
  })

  it.each([
    ['IPRestriction', { allow_cidrs: [], deny_cidrs: null }],
    ['UserAgentFilter', { allow: null }],
    ['RequestHeaders', {}],
    ['CircuitBreaker', { error_threshold: 0 }],
  ])('makes no rule of %s when it says nothing', async (name, value) => {
    expect((await openBinder()).judge({ [name]: value }).around).toBeUndefined()
  })

  it.each([1, 2])(
    'knows version %i of the PROXY protocol, wherever it is asked for',
    async (version) => {
      const { judge } = await openBinder()
      expect(judge({ ProxyProto: version }).proxyProtocol).toBe(version)
      expect(judge({}, 'https', { ProxyProto: version }).proxyProtocol).toBe(version)
      expect(judge({ ProxyProto: 0 }).proxyProtocol).toBeUndefined()
    },
  )

  it('spreads many headers over as many actions as they need, in their order', async () => {
    const add = [...Array.from({ length: 12 }, (_, at) => `x-${at}:v`), 'x-0:again']
    const { around } = (await openBinder()).judge({
      ResponseHeaders: { add, remove: Array(11).fill('x') },
    })
    const [rule] = around?.on_http_response ?? []
    const configs = rule?.actions.map(({ config }) => Object.values(config)[0])
    expect(configs?.map((headers) => Object.keys(headers).length)).toEqual([10, 1, 10, 3])
    expect(configs?.[3]).toEqual({ 'x-10': 'v', 'x-11': 'v', 'x-0': 'again' })
  })

  it.each([
    ['TrafficPolicy', '{}', {}],
    ['Policy', { Inbound: [] }, {}],
    ['IPPolicyRef', 'ipp_a', { IPPolicyRef: 'ipp_b' }],
  ])('refuses %s where nobody reads it, or twice', async (name, value, Opts) => {
    const { judge } = await openBinder()
    expect(serviceCode(() => judge(Opts, 'https', { [name]: value }))).toBe(301)
  })

  it('keeps an option that the other part of the bind does not set', async () => {
    const { around } = (await openBinder()).judge({ IPPolicyRef: null }, 'https', {
      IPPolicyRef: 'ipp_a',
    })
    expect(around?.on_http_request?.[0]?.actions[0]?.config).toEqual({ ip_policies: ['ipp_a'] })
  })

  it('reads the policies of clients of before 2024, which are no texts', async () => {
    const config = { status_code: 405 }
    const Config = Buffer.from(JSON.stringify(config)).toString('base64')
    const Policy = {
      Inbound: [{ Name: 'n', Expressions: ['true'], Actions: [{ Type: 'deny', Config }] }],
      Outbound: [{ Name: '', Expressions: [], Actions: [{ Type: 'compress-response' }] }],
    }
    const { trafficPolicy } = (await openBinder()).judge({ Policy })
    expect(JSON.parse(trafficPolicy ?? '')).toEqual({
      inbound: [{ name: 'n', expressions: ['true'], actions: [{ type: 'deny', config }] }],
      outbound: [{ expressions: [], actions: [{ type: 'compress-response', config: {} }] }],
    })
  })

  it('gives a random name again to who has its token, unless somebody has it', async () => {
    const { judge, registry, issuer, binder, registrar } = await openBinder()
    const drawn = judge({})
    expect(drawn.token).toMatch(`${drawn.host} `)
    const again = (Token: string) => judge({}, 'https', { Token })
    expect(again(drawn.token).host).toBe(drawn.host)
    for (const other of [
      'cam.site.test',
      'abcdefghij.other.test',
      `${drawn.host}.`,
      'x',
      '.site.test',
    ]) {
      expect(again(other).host).not.toBe(other)
    }
    registry.add({ host: drawn.host, protocol: 'https' } as Endpoint)
    expect(again(drawn.token).host).not.toBe(drawn.host)
    await registrar.reserve({ domain: '*.siteb.test' })
    const { id } = (await issuer.createCredential({ acl: ['bind:*.siteb.test'] })).credential
    const elsewhere = { Id: '', Proto: 'https', Extra: { Token: drawn.token } }
    expect(binder.judge(parseBind(elsewhere), { credentialId: id, ownerId: null }).host).toMatch(
      /\.siteb\.test$/,
    )
    expect(judge({ Domain: 'cam.site.test' }).token).toBe('')
    expect(judge({ Subdomain: 'cam' }).token).toBe('')
  })

  it('refuses two policies for one endpoint', async () => {
    const { judge } = await openBinder()
    const Domain = 'cam.site.test'
    expect(serviceCode(() => judge({ Domain, Policy: '{}', TrafficPolicy: '{}' }))).toBe(9025)
  })

  it('tells what is wrong with a policy, and passes on what is not about it', async () => {
    const { judge, compile, policies } = await openBinder()
    const Domain = 'cam.site.test'
    const wrong = judge({ Domain, TrafficPolicy: '{"on_http": []}' })
    await expect(compile(wrong)).rejects.toMatchObject({ code: 9026 })
    policies.compileInTurns = () => Promise.reject(new RangeError('out of bounds'))
    await expect(compile(judge({ Domain }))).rejects.toThrow(RangeError)
  })

  it('asks again for the right to bind when the policy is compiled', async () => {
    const { judge, compile, issuer, credential, policies } = await openBinder()
    const compileInTurns = policies.compileInTurns.bind(policies)
    policies.compileInTurns = async (...asked) => {
      await issuer.updateCredential(credential, { acl: ['bind:other.site.test'] })
      return compileInTurns(...asked)
    }
    const compiling = compile(judge({ Domain: 'cam.site.test' }))
    await expect(compiling).rejects.toMatchObject({ code: 316 })
  })

  it('takes metadata of 4,096 bytes and no more, and none as an empty text', async () => {
    const { judge } = await openBinder()
    const ask = (Metadata?: string) =>
      judge({ Domain: 'cam.site.test' }, 'https', Metadata === undefined ? {} : { Metadata })
    expect(ask().metadata).toBe('')
    expect(ask('x'.repeat(4_096)).metadata).toHaveLength(4_096)
    expect(serviceCode(() => ask('x'.repeat(4_097)))).toBe(301)
    expect(() => ask('x'.repeat(4_097))).toThrow(/metadata/)
  })
})
