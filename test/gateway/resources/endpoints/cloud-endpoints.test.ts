import { describe, expect, it } from 'vitest'
import type { CloudEndpoint, Endpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import { ServiceError } from '../../../../src/gateway/records/service-error.ts'
import { YamlReader } from '../../../../src/policy/document/yaml-reader.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { ONE_PER_MINUTE } from '../../../helpers/one-per-minute.ts'
import { createExchange } from '../../../helpers/policy-exchange.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

const DENY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })
const ANSWER = 'on_http_request:\n  - actions:\n      - type: custom-response\n'

/** Who may use the gateway's own domains for every account. */
const ADMIN = { isGranted: true }

async function openCloudEndpoints(folder = temporaryFolder(), yaml?: YamlReader) {
  const stores = openGatewayStores(folder, { ...(yaml && { yaml }) })
  const { registrar, domains, cloudEndpoints } = stores
  if (!domains.find('*.site.test')) await registrar.reserve({ domain: '*.site.test' })
  return {
    ...stores,
    create: (url: string, trafficPolicy = DENY, more: object = {}) =>
      cloudEndpoints.create({ url, trafficPolicy, ...more }, ADMIN),
  }
}

/** The code that a promise is refused with, or undefined when it is not. */
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error) => {
      if (error instanceof ServiceError) return error.code
      throw error
    },
  )

const statusOf = async ({ policy }: Pick<Endpoint, 'policy'>) => {
  const outcome = await policy.onHttpRequest(createExchange())
  return outcome.kind === 'respond' ? outcome.reply.status : outcome.kind
}

describe('CloudEndpoints', () => {
  it('are on disk and online when they are made, and gone when they are deleted', async () => {
    const { create, cloudEndpoints, registry, coveredHosts, cloudEndpointStore, clock } =
      await openCloudEndpoints()
    const endpoint = await create('https://Front.site.test', ANSWER, { metadata: 'm' })
    expect(endpoint).toMatchObject({
      type: 'cloud',
      url: 'https://front.site.test:8443',
      host: 'front.site.test',
      protocol: 'https',
      trafficPolicy: ANSWER,
      description: '',
      metadata: 'm',
      openedAt: clock.now(),
      updatedAt: clock.now(),
    })
    expect(registry.match('front.site.test')).toBe(endpoint)
    expect(coveredHosts).toEqual(['front.site.test'])
    expect(cloudEndpointStore.all()).toHaveLength(1)
    await cloudEndpoints.delete(endpoint)
    expect(registry.size).toBe(0)
    expect(cloudEndpointStore.all()).toEqual([])
  })

  it.each([
    ['http://front.site.test', 'http://front.site.test:8080'],
    ['HTTPS://FRONT.site.test/', 'https://front.site.test:8443'],
    ['https://front.site.test:443', 'https://front.site.test:8443'],
    ['https://front.site.test:8443', 'https://front.site.test:8443'],
    ['https://*.site.test', 'https://*.site.test:8443'],
    ['https://front.internal', 'https://front.internal'],
    ['http://front.internal:80', 'http://front.internal'],
  ])('take the URL %s and show %s', async (url, shown) => {
    const { create } = await openCloudEndpoints()
    expect((await create(url)).url).toBe(shown)
  })

  it.each([
    ['front.site.test', 18022],
    ['', 18022],
    ['tcp://front.site.test:5000', 18022],
    ['tls://front.site.test', 2230],
    ['tcp://front.internal', 18001],
    ['tcp://*.internal:22', 326],
    ['tcp://front.internal:0', 9030],
    ['ssh://front.site.test', 18022],
    ['https://', 18001],
    ['https://front.site.test/path', 18001],
    ['https://front.site.test?q', 18001],
    ['https://user@front.site.test', 18001],
    ['https://front.site.test:x', 18001],
    ['https://front.site.test:8080', 18003],
    ['https://front.internal:8443', 18003],
    ['https://a b.site.test', 326],
    ['https://bücher.site.test', 326],
    ['https://a..site.test', 327],
    ['https://-a.site.test', 328],
    ['https://127.0.0.1', 331],
    ['https://site', 331],
    ['https://a_b.site.test', 355],
    ['https://front.elsewhere.test', 319],
    ['https://*.elsewhere.test', 318],
    ['https://*.deeper.site.test', 321],
    ['https://a.b.c.d.e.internal', 9031],
    ['https://taken.site.test', 334],
    ['https://online.site.test', 334],
  ])('refuse the URL %s with %i', async (url, code) => {
    const { create, registry, cloudEndpointStore } = await openCloudEndpoints()
    await create('https://taken.site.test')
    registry.add({
      type: 'agent',
      protocol: 'https',
      host: 'online.site.test',
      url: 'https://online',
    } as Endpoint)
    expect(await codeOf(create(url))).toBe(code)
    expect(cloudEndpointStore.all()).toHaveLength(1)
  })

  it('have one for each scheme of a host', async () => {
    const { create, cloudEndpointStore, registry } = await openCloudEndpoints()
    const [secure, plain] = [
      await create('https://front.site.test'),
      await create('http://front.site.test'),
    ]
    expect(registry.match('front.site.test', 'https')).toBe(secure)
    expect(registry.match('front.site.test', 'http')).toBe(plain)
    expect(cloudEndpointStore.all()).toHaveLength(2)
  })

  it.each([
    [{ bindings: ['public'] }, undefined],
    [{ bindings: [] }, undefined],
    [{ bindings: ['internal'] }, 9029],
    [{ bindings: ['kubernetes'] }, 18014],
    [{ isPooled: false }, undefined],
    [{ isPooled: true }, undefined],
    [{ description: 'x'.repeat(256) }, 18012],
    [{ metadata: 'x'.repeat(4_097) }, 18013],
  ])('judge %j with %s', async (settings, code) => {
    const { create, cloudEndpoints } = await openCloudEndpoints()
    expect(await codeOf(create('https://front.site.test', DENY, settings))).toBe(code)
    const { id } = await create('https://other.site.test')
    expect(await codeOf(cloudEndpoints.update(id, settings, ADMIN))).toBe(code)
  })

  it.each([
    ['{"on_http_request":', 2236],
    ['{"on_http_request":[{"actions":[{"type":"explode"}]}]}', 2201],
    ['{"on_http_request":[{"expressions":["1 +"],"actions":[{"type":"deny"}]}]}', 2200],
    ['{"on_http_request":[{"actions":[]}]}', 2206],
    ['{}', 2235],
    [
      '{"on_http_request":[{"expressions":["req.host == \'a\'"],"actions":[{"type":"deny"}]}]}',
      2235,
    ],
  ])('refuse the policy %s with %i', async (policy, code) => {
    const { create, cloudEndpoints, cloudEndpointStore } = await openCloudEndpoints()
    expect(await codeOf(create('https://front.site.test', policy))).toBe(code)
    const { id } = await create('https://front.site.test')
    expect(await codeOf(cloudEndpoints.update(id, { trafficPolicy: policy }, ADMIN))).toBe(code)
    expect(cloudEndpointStore.get(id)?.trafficPolicy).toBe(DENY)
  })

  it('share a URL when they agree to it, before and after a restart', async () => {
    const folder = temporaryFolder()
    const { create, cloudEndpoints, database, registry } = await openCloudEndpoints(folder)
    const url = 'https://front.site.test'
    const first = await create(url, DENY, { isPooled: true })
    expect(await codeOf(create(url))).toBe(18017)
    const second = await create(url, ANSWER, { isPooled: true })
    expect(registry.holdersOf(first, null)).toEqual([first, second])
    expect(await codeOf(cloudEndpoints.update(first.id, { isPooled: false }, ADMIN))).toBe(18017)
    await create('https://alone.site.test')
    expect(await codeOf(create('https://alone.site.test', DENY, { isPooled: true }))).toBe(18016)
    database.close()

    const again = await openCloudEndpoints(folder)
    await again.cloudEndpoints.restore()
    expect(again.registry.holdersOf(first, null).map(({ id }) => id)).toEqual([first.id, second.id])
    await again.cloudEndpoints.delete(again.registry.find(second.id) as CloudEndpoint)
    const alone = await again.cloudEndpoints.update(first.id, { isPooled: false }, ADMIN)
    expect(alone?.poolMember).toBeUndefined()
    expect(await codeOf(again.create(url, DENY, { isPooled: true }))).toBe(18016)
  })

  it('are judged anew at another host', async () => {
    const { create, cloudEndpoints, registry } = await openCloudEndpoints()
    const policy = `{"on_tcp_connect":[{"actions":[{"type":"log","config":{"metadata":{}}}]}],${DENY.slice(1)}`
    const { id } = await create('https://front.site.test', policy)
    const move = cloudEndpoints.update(id, { url: 'https://front.internal' }, ADMIN)
    expect(await codeOf(move)).toBe(2262)
    expect(registry.holdersOf({ protocol: 'https', host: 'front.site.test' }, null)[0]?.id).toBe(id)
  })

  it('name every problem of a policy with its place and code', async () => {
    const { create } = await openCloudEndpoints()
    const policy =
      '{"on_http_request":[{"actions":[{"type":"explode"},{"type":"deny","config":{"status_code":1}}]}]}'
    await expect(create('https://front.site.test', policy)).rejects.toThrow(
      /\/on_http_request\/0\/actions\/0\/type: .* \(ERR_NGROK_2201\).*\/actions\/1\/config\/status_code: /,
    )
  })

  it('change in place: the next look finds what was asked for, and the figures go on', async () => {
    const { create, cloudEndpoints, registry, clock, coveredHosts } = await openCloudEndpoints()
    const before = await create('https://front.site.test', DENY, { description: 'old' })
    before.traffic.requests = 7
    await clock.advance(60_000)
    const after = await cloudEndpoints.update(
      before.id,
      {
        url: 'https://door.site.test',
        trafficPolicy: ANSWER,
        description: 'new',
      },
      ADMIN,
    )
    expect(after).toMatchObject({
      id: before.id,
      url: 'https://door.site.test:8443',
      description: 'new',
      openedAt: before.openedAt,
      updatedAt: clock.now(),
    })
    expect(after?.traffic).toBe(before.traffic)
    expect(registry.match('front.site.test')).toBeUndefined()
    expect(registry.match('door.site.test')).toBe(after)
    expect(coveredHosts.at(-1)).toBe('door.site.test')
    expect([await statusOf(before), after && (await statusOf(after))]).toEqual([403, 200])
  })

  it('keep their host free for nobody, and their scheme', async () => {
    const { create, cloudEndpoints } = await openCloudEndpoints()
    await create('https://a.site.test')
    const { id, url } = await create('https://b.site.test')
    const update = (to: string) => codeOf(cloudEndpoints.update(id, { url: to }, ADMIN))
    expect(await update('https://a.site.test')).toBe(334)
    expect(await update('http://b.site.test')).toBe(18005)
    expect(await update('https://b.elsewhere.test')).toBe(319)
    expect(await update(url)).toBeUndefined()
    expect(await cloudEndpoints.update('ep_unknown', { description: 'x' }, ADMIN)).toBeUndefined()
  })

  it('keep counting what a change leaves alone', async () => {
    const { create, cloudEndpoints } = await openCloudEndpoints()
    const first = await create('https://front.site.test', ONE_PER_MINUTE)
    expect([await statusOf(first), await statusOf(first)]).toEqual([200, 429])
    for (const change of [{ description: 'x' }, { trafficPolicy: ` ${ONE_PER_MINUTE}` }]) {
      const changed = await cloudEndpoints.update(first.id, change, ADMIN)
      expect(changed && (await statusOf(changed))).toBe(429)
    }
    const wider = ONE_PER_MINUTE.replace('"capacity":1', '"capacity":2')
    const reset = await cloudEndpoints.update(first.id, { trafficPolicy: wider }, ADMIN)
    expect(reset && (await statusOf(reset))).toBe(200)
  })

  it('are back after a restart, with the port that the ingress has by then', async () => {
    const folder = temporaryFolder()
    const earlier = await openCloudEndpoints(folder)
    const made = await earlier.create('https://front.site.test', ANSWER, { description: 'd' })
    const moved = await earlier.create('http://hall.internal')
    await earlier.cloudEndpoints.update(moved.id, { url: 'http://cellar.internal' }, ADMIN)
    await earlier.cloudEndpoints.delete(await earlier.create('https://gone.site.test'))
    earlier.database.close()

    const { cloudEndpoints, registry, urls, coveredHosts } = openGatewayStores(folder)
    await cloudEndpoints.restore()
    urls.listening({ http: 80, https: 443 })
    expect([...registry.all()].map(({ url }) => url).sort()).toEqual([
      'http://cellar.internal',
      'https://front.site.test',
    ])
    const { policy: _policy, url: _url, ...shown } = made
    expect(registry.match('front.site.test')).toMatchObject(shown)
    expect(coveredHosts).toEqual(['front.site.test', 'cellar.internal'])
  })

  it('are refused for now, or stay as they are, if the thread for YAML does not start', async () => {
    const folder = temporaryFolder()
    const earlier = await openCloudEndpoints(folder)
    await earlier.create('https://front.site.test', ANSWER)
    earlier.database.close()

    const yaml = new YamlReader({ program: '/no/such/thread.mjs' })
    const { create, cloudEndpoints, registry } = await openCloudEndpoints(folder, yaml)
    await cloudEndpoints.restore()
    const [front] = registry.all()
    expect(front && (await statusOf(front))).toBe(200)
    const unread = { name: 'AppError', status: 503, message: expect.stringContaining('as JSON') }
    // A text that was read before needs no thread.
    const other = `${ANSWER}# other\n`
    await expect(create('https://a.site.test', other)).rejects.toMatchObject(unread)
    const { id = '' } = front ?? {}
    const change = cloudEndpoints.update(id, { trafficPolicy: other }, ADMIN)
    await expect(change).rejects.toMatchObject(unread)
    expect([...registry.all()]).toEqual([front])
    await create('https://json.site.test')
  })

  it('name the place of an error in YAML', async () => {
    const { create } = await openCloudEndpoints()
    const twice = create('https://front.site.test', `${ANSWER}on_http_request: []\n`)
    await expect(twice).rejects.toThrow(
      '/on_http_request: on_http_request is defined twice (line 4, column 1). (ERR_NGROK_2236)',
    )
  })

  it('hold their host with a policy that is no longer understood, and let nothing through', async () => {
    const folder = temporaryFolder()
    const earlier = await openCloudEndpoints(folder)
    const { id } = await earlier.create('https://front.site.test')
    const stored = earlier.cloudEndpointStore.get(id)
    if (!stored) throw new Error('it is not stored')
    const broken = { ...stored, trafficPolicy: '{"on_the_moon":[]}' }
    earlier.database.write(() => earlier.cloudEndpointStore.replace(broken))
    earlier.database.close()

    const { cloudEndpoints, registry, captured } = openGatewayStores(folder)
    await cloudEndpoints.restore()
    const endpoint = registry.holdersOf({ protocol: 'https', host: 'front.site.test' }, null)[0]
    expect(endpoint?.trafficPolicy).toBe('{"on_the_moon":[]}')
    expect(endpoint && (await statusOf(endpoint))).toBe('continue')
    expect(captured.text()).toContain('on_the_moon')
    const healed = await cloudEndpoints.update(id, { trafficPolicy: DENY }, ADMIN)
    expect(healed && (await statusOf(healed))).toBe(403)
  })

  it('hand their counters on to the next endpoint on the host', async () => {
    const { create, cloudEndpoints } = await openCloudEndpoints()
    const first = await create('https://front.site.test', ONE_PER_MINUTE)
    expect([await statusOf(first), await statusOf(first)]).toEqual([200, 429])
    await cloudEndpoints.delete(first)
    expect(await statusOf(await create('https://front.site.test', ONE_PER_MINUTE))).toBe(429)
  })

  it('are refused when their domain is given up while they wait for a certificate', async () => {
    const { create, cloudEndpoints, cloudEndpointStore, registrar, registry, coveredHosts } =
      await openCloudEndpoints()
    const { id } = await create('https://front.site.test')
    const url = 'https://hall.other.test'
    for (const ask of [() => create(url), () => cloudEndpoints.update(id, { url }, ADMIN)]) {
      const domain = await registrar.reserve({ domain: 'hall.other.test' })
      const asked = ask()
      await registrar.release(domain)
      expect(await codeOf(asked)).toBe(319)
    }
    expect(coveredHosts.slice(1)).toEqual(['hall.other.test', 'hall.other.test'])
    expect([...registry.all()].map(({ host }) => host)).toEqual(['front.site.test'])
    expect(cloudEndpointStore.all()).toHaveLength(1)
  })

  it('keep the domain that they need', async () => {
    const { create, cloudEndpoints, registrar, domains } = await openCloudEndpoints()
    const domain = domains.find('*.site.test')
    if (!domain) throw new Error('it is not reserved')
    const endpoint = await create('https://front.site.test')
    expect(await codeOf((async () => registrar.release(domain))())).toBe(446)
    await cloudEndpoints.delete(endpoint)
    await registrar.release(domain)
    expect(await codeOf(create('https://front.site.test'))).toBe(319)
  })
})
