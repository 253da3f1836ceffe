import { expect, it } from 'vitest'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

/** A database as a gateway left it that allowed overlaps, with `*.site.test` made first. */
async function oldDatabase() {
  const { folder, issuer, registrar, domains, cloudEndpointStore, database, clock } =
    openGatewayStores()
  const botUser = async (name: string) => {
    const { id } = await issuer.createBotUser({ name })
    const made = await issuer.createCredential({ ownerId: id })
    return { id, token: made.authtoken.reveal() }
  }
  const [older, newer] = [await botUser('older'), await botUser('newer')]
  const reserve = async (domain: string, ownerId: string) => {
    await clock.advance(1_000)
    const reserved = await registrar.reserve({ domain, ownerId })
    // The migration knows of no domain whether the gateway's owner made it.
    await database.change(() => domains.replace({ ...reserved, isGranted: false }))
    return reserved
  }
  const wide = await reserve('*.shop.test', older.id)
  const narrow = await reserve('cam.shop.test', newer.id)
  const apart = await reserve('cam.other.test', newer.id)
  await registrar.reserve({ domain: '*.site.gateway.test' })
  // Names of the domain of the gateway's owner, by a rule above it.
  const acl = [
    ...['bind:*.gateway.test', 'bind:cam.site.gateway.test', 'bind:*.other.test'],
    ...['bind:free.example', 'bind:cam.shop.test', 'bind:cam.internal', 'bind:gw.test:*'],
  ]
  const { credential } = await issuer.createCredential({ ownerId: newer.id, acl })
  const front = (id: string, host: string) => ({
    ...{ id, host, ownerId: newer.id, protocol: 'https' as const, isShared: false },
    ...{ isPooled: false, description: '', metadata: '', createdAt: 0, updatedAt: 0 },
    trafficPolicy: '{"on_http_request":[{"actions":[{"type":"deny"}]}]}',
  })
  await database.change(() => {
    cloudEndpointStore.insert(front('ep_1', 'cam.shop.test'))
    cloudEndpointStore.insert(front('ep_2', 'cam.other.test'))
  })
  database.close()
  return { folder, older, newer, wide, narrow, apart, credential }
}

it('tells of ACL rules and cloud endpoints that lost their names, and names no other account', async () => {
  const { folder, newer, narrow, wide, credential } = await oldDatabase()
  const running = await startGateway({
    dataDir: folder,
    apiListen: { host: '127.0.0.1', port: 0 },
  })
  const { call } = await managed(running)
  const { body: key } = await call('POST', '/api_keys', { owner_id: newer.id, owner_only: true })
  const rules = ['bind:*.gateway.test', 'bind:cam.shop.test'].map((rule) => ({
    rule,
    msg: expect.stringContaining('gives no names'),
  }))
  const msg = 'not in a domain of the account of this endpoint'
  // Both see them in their lists.
  for (const token of [undefined, key.token as string]) {
    const list = async (path: string) => {
      const { status, body } = await call('GET', path, undefined, token)
      expect(status).toBe(200)
      return body as Record<string, Record<string, unknown>[]>
    }
    const { credentials } = await list('/credentials')
    const lost = credentials?.filter((it) => it.rules_without_effect !== undefined)
    expect(lost).toEqual([
      expect.objectContaining({ id: credential.id, rules_without_effect: rules }),
    ])
    const { endpoints } = await list('/endpoints')
    expect(endpoints?.map((it) => [it.host, it.overlap]).toSorted()).toEqual([
      ['cam.other.test', undefined],
      ['cam.shop.test', { msg: expect.stringContaining(msg) }],
    ])
    // The field is there for a filter, too.
    const found = await list(
      `/endpoints?filter=${encodeURIComponent("obj.overlap.msg.contains('account')")}`,
    )
    expect(found.endpoints?.map(({ id }) => id)).toEqual(['ep_1'])
  }
  // The other account learns that there is a domain, and not which.
  const { body } = await call('GET', `/reserved_domains/${narrow.id}`, undefined, key.token)
  expect(body.overlap).toEqual({ msg: expect.stringContaining('of another account') })
  for (const path of ['/reserved_domains', '/credentials', '/endpoints']) {
    const text = JSON.stringify((await call('GET', path, undefined, key.token)).body)
    expect(text).not.toContain(wide.id)
    expect(text).not.toContain(wide.domain)
  }
  expect(running.logText()).toContain('gives no names')
  expect(running.logText()).toContain(msg)
})

it('lets the older of two domains serve after an upgrade, and tells the owner of both', async () => {
  const { folder, older, newer, wide, narrow, apart } = await oldDatabase()
  const running = await startGateway({
    dataDir: folder,
    apiListen: { host: '127.0.0.1', port: 0 },
  })
  const { call } = await managed(running)
  const agent = async (token: string) => {
    const raw = await RawAgent.connect(running)
    expect((await raw.auth(token)).Error ?? '').toBe('')
    return raw
  }
  const [first, second] = [await agent(older.token), await agent(newer.token)]
  expect(codeOf(await second.bind('cam.shop.test'))).toBe('ERR_NGROK_319')
  expect(codeOf(await second.bind('door.other.test'))).toBe('ERR_NGROK_319')
  await call('DELETE', '/endpoints/ep_1')
  await call('DELETE', '/endpoints/ep_2')
  expect(codeOf(await second.bind('cam.other.test'))).toBeUndefined()
  const bound = await first.bind('cam.shop.test')
  expect(codeOf(bound)).toBeUndefined()

  expect(running.logText()).toContain('two accounts have domains that overlap')
  const overlapOf = async (id: string) => {
    const { body } = await call('GET', `/reserved_domains/${id}`)
    return (body as { overlap?: object }).overlap
  }
  expect(await overlapOf(narrow.id)).toEqual({
    older_id: wide.id,
    older_domain: '*.shop.test',
    msg: expect.stringContaining('set its owner_id again'),
  })
  expect([await overlapOf(wide.id), await overlapOf(apart.id)]).toEqual([undefined, undefined])

  // What the text says helps.
  await first.rpc(2, { Id: bound.Id })
  const given = await call('PATCH', `/reserved_domains/${narrow.id}`, { owner_id: newer.id })
  expect([given.status, await overlapOf(narrow.id)]).toEqual([200, undefined])
  expect(codeOf(await second.bind('cam.shop.test'))).toBeUndefined()
})

it('serves domains that accounts may no longer reserve, and tells their owner', async () => {
  const { folder, issuer, registrar, domains, database } = openGatewayStores()
  const { id: ownerId } = await issuer.createBotUser({ name: 'one' })
  const { authtoken } = await issuer.createCredential({ ownerId })
  const reserve = async (domain: string) => {
    const reserved = await registrar.reserve({ domain, ownerId })
    // The migration knows of no domain whether the gateway's owner made it.
    await database.change(() => domains.replace({ ...reserved, isGranted: false }))
    return reserved.id
  }
  const suffix = await reserve('*.co.uk')
  const own = await reserve('cam.gateway.localhost')
  const same = await reserve('gateway.localhost')
  const other = await reserve('cam.shop.test')
  database.close()
  const running = await startGateway({
    dataDir: folder,
    apiListen: { host: '127.0.0.1', port: 0 },
  })
  const agent = await RawAgent.connect(running)
  expect((await agent.auth(authtoken.reveal())).Error ?? '').toBe('')
  for (const name of ['shop.co.uk', 'cam.gateway.localhost', 'cam.shop.test']) {
    expect(codeOf(await agent.bind(name))).toBeUndefined()
  }
  expect(codeOf(await agent.bind('gateway.localhost'))).toMatch(/^ERR_NGROK_/)
  const { call } = await managed(running)
  const { body: key } = await call('POST', '/api_keys', { owner_id: ownerId, owner_only: true })
  const warnings = async (token?: string) => {
    const { body } = await call('GET', '/reserved_domains', undefined, token)
    const list = body.reserved_domains as { id: string; warning?: { msg: string } }[]
    return Object.fromEntries(list.map(({ id, warning }) => [id, warning?.msg]))
  }
  const told = {
    [suffix]: expect.stringContaining('is a public suffix'),
    [own]: expect.stringContaining('a name of the gateway itself'),
    [same]: expect.stringContaining('Endpoints at names of the gateway are refused.'),
    [other]: undefined,
  }
  expect(await warnings()).toMatchObject(told)
  expect(await warnings(key.token as string)).toMatchObject(told)
  expect(running.logText()).toContain('is a public suffix')

  // What the text says helps.
  await call('PATCH', `/reserved_domains/${suffix}`, { owner_id: ownerId })
  expect(await warnings()).toMatchObject({ ...told, [suffix]: undefined })
})

it('refuses the traffic of a cloud endpoint whose policy is invalid now, and tells its owner', async () => {
  const { folder, registrar, cloudEndpointStore, database } = openGatewayStores()
  await registrar.reserve({ domain: '*.shop.test' })
  const front = (id: string, host: string, trafficPolicy: string) => ({
    ...{ id, host, trafficPolicy, ownerId: null, protocol: 'http' as const, isShared: false },
    ...{ isPooled: false, description: '', metadata: '', createdAt: 0, updatedAt: 0 },
  })
  const good = { type: 'custom-response', config: { status_code: 200, body: 'good' } }
  const policy = (...actions: object[]) => JSON.stringify({ on_http_request: [{ actions }] })
  await database.change(() => {
    cloudEndpointStore.insert(front('ep_1', 'good.shop.test', policy(good)))
    const unknown = { type: 'of-yesterday', config: {} }
    cloudEndpointStore.insert(front('ep_2', 'old.shop.test', policy(unknown, good)))
  })
  database.close()
  const running = await startGateway({
    dataDir: folder,
    apiListen: { host: '127.0.0.1', port: 0 },
  })
  const { call } = await managed(running)
  const ingress = `http://127.0.0.1:${running.addresses.http.port}`
  const visit = (host: string) => publicRequest({ ingress, host })
  expect(await visit('good.shop.test')).toMatchObject({ status: 200, text: 'good' })
  // Rules in front of the answer may protect it.
  expect((await visit('old.shop.test')).status).toBe(500)
  const problemOf = async (id: string) => {
    const { body } = await call('GET', `/endpoints/${id}`)
    return (body as { policy_problem?: { msg: string } }).policy_problem?.msg
  }
  expect(await problemOf('ep_1')).toBeUndefined()
  expect(await problemOf('ep_2')).toContain('of-yesterday')
  expect(running.logText()).toContain('of-yesterday')

  await call('PATCH', '/endpoints/ep_2', { description: 'as before' })
  expect(await problemOf('ep_2')).toContain('of-yesterday')
  await call('PATCH', '/endpoints/ep_2', { traffic_policy: policy(good) })
  expect(await problemOf('ep_2')).toBeUndefined()
  expect(await visit('old.shop.test')).toMatchObject({ status: 200, text: 'good' })
})

/** A rule that newer checks refuse: its URL has a scheme that requests cannot have. */
const OUTDATED = {
  expressions: ["req.url.path == '/old'"],
  actions: [{ type: 'http-request', config: { url: 'ftp://files.test/' } }],
}
const GOOD = { actions: [{ type: 'custom-response', config: { status_code: 200, body: 'good' } }] }
const policyOf = (...rules: object[]) => JSON.stringify({ on_http_request: rules })

it('runs a stored policy that newer checks refuse, and warns its owner', async () => {
  const { folder, registrar, cloudEndpointStore, database } = openGatewayStores()
  await registrar.reserve({ domain: '*.shop.test' })
  const outdated = policyOf(OUTDATED, GOOD)
  await database.change(() => {
    cloudEndpointStore.insert({
      ...{ id: 'ep_1', host: 'old.shop.test', trafficPolicy: outdated, ownerId: null },
      ...{ protocol: 'http' as const, isShared: false, isPooled: false, description: '' },
      ...{ metadata: '', createdAt: 0, updatedAt: 0 },
    })
  })
  database.close()
  const running = await startGateway({
    dataDir: folder,
    apiListen: { host: '127.0.0.1', port: 0 },
  })
  const { call } = await managed(running)
  const ingress = `http://127.0.0.1:${running.addresses.http.port}`
  const serves = async (host: string) => {
    expect(await publicRequest({ ingress, host })).toMatchObject({ status: 200, text: 'good' })
    // The rule is in force, as before: its request fails.
    expect(await publicRequest({ ingress, host, path: '/old' })).toMatchObject({ status: 500 })
  }
  await serves('old.shop.test')
  const told = { warning: { msg: expect.stringContaining('ftp://files.test/ is not an https:') } }
  const { body } = await call('GET', '/endpoints/ep_1')
  expect(body).toMatchObject(told)
  expect(body).not.toHaveProperty('policy_problem')
  expect(running.logText()).toContain('cloud endpoint has an outdated policy')

  // Changes that leave the policy alone go through. A new policy is held to the checks of today.
  for (const change of [
    { description: 'as before' },
    { url: 'http://moved.shop.test', traffic_policy: outdated },
  ]) {
    expect(await call('PATCH', '/endpoints/ep_1', change)).toMatchObject({
      status: 200,
      body: told,
    })
  }
  await serves('moved.shop.test')
  const other = { traffic_policy: policyOf(OUTDATED, GOOD, GOOD) }
  const refused = await call('PATCH', '/endpoints/ep_1', other)
  expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_NGROK_2204'])
  const again = { url: 'http://new.shop.test', traffic_policy: outdated }
  expect((await call('POST', '/endpoints', again)).status).toBe(400)
  await call('PATCH', '/endpoints/ep_1', { traffic_policy: policyOf(GOOD) })
  expect((await call('GET', '/endpoints/ep_1')).body).not.toHaveProperty('warning')
})

it('lets a device bind the policy that it stored before newer checks, and warns', async () => {
  const running = await startGateway({ apiListen: { host: '127.0.0.1', port: 0 } })
  const { call } = await managed(running)
  const agent = await RawAgent.connect(running)
  expect((await agent.auth(running.authtoken.reveal())).Error ?? '').toBe('')
  const bind = (TrafficPolicy: string) =>
    agent.bind('', { Opts: { Domain: 'cam.site.test', TrafficPolicy } })
  const unusable = { actions: [{ type: 'of-yesterday', config: {} }] }
  expect(codeOf(await bind(policyOf(OUTDATED, unusable)))).toBe('ERR_NGROK_9026')
  const bound = await bind(policyOf(OUTDATED))
  expect(codeOf(bound)).toBeUndefined()
  const { body } = await call('GET', `/endpoints/${bound.Id}`)
  expect(body).toMatchObject({ warning: { msg: expect.stringContaining('ftp://files.test/') } })
  expect(running.logText()).toContain('endpoint has an outdated policy')
})

it('serves what an account stored before lower quotas, and warns', async () => {
  const stores = openGatewayStores()
  const { folder, issuer, registrar, cloudEndpointStore, database } = stores
  const user = await issuer.createBotUser({ name: 'one' })
  const ownerId = user.id
  await registrar.reserve({ domain: '*.shop.test', ownerId })
  const { authtoken } = await issuer.createCredential({ ownerId })
  const { token } = await issuer.createApiKey({ ownerId, description: 'own' })
  await database.change(() => {
    cloudEndpointStore.insert({
      ...{ id: 'ep_1', host: 'front.shop.test', trafficPolicy: policyOf(GOOD), ownerId },
      ...{ protocol: 'http' as const, isShared: false, isPooled: false, description: '' },
      ...{ metadata: '', createdAt: 0, updatedAt: 0 },
    })
  })
  const none = { domains: 0, credentials: 0, keys: 0, cloud_endpoints: 0, policy_bytes: 0 }
  await issuer.updateBotUser(user, { quotas: none })
  database.close()
  const running = await startGateway({
    dataDir: folder,
    apiListen: { host: '127.0.0.1', port: 0 },
  })
  const ingress = `http://127.0.0.1:${running.addresses.http.port}`
  const front = { ingress, host: 'front.shop.test' }
  expect(await publicRequest(front)).toMatchObject({ status: 200, text: 'good' })
  const agent = await RawAgent.connect(running)
  expect((await agent.auth(authtoken.reveal())).Error ?? '').toBe('')
  expect(codeOf(await agent.bind('cam.shop.test'))).toBeUndefined()
  const { call } = await managed(running)
  const key = token.reveal()
  const { status, body } = await call('GET', `/bot_users/${ownerId}`, undefined, key)
  expect([status, body.warning]).toEqual([
    200,
    { msg: expect.stringMatching(/domains \(1 of 0\), credentials \(1 of 0\), keys \(1 of 0\)/) },
  ])
  expect(running.logText()).toContain('cloud_endpoints (1 of 0), policy_bytes')
  const changed = await call('PATCH', '/endpoints/ep_1', { description: 'as before' }, key)
  expect(changed.status).toBe(200)
  const more = await call(
    'POST',
    '/reserved_domains',
    { domain: 'more.test', owner_id: ownerId },
    key,
  )
  expect([more.status, more.body.error_code]).toEqual([409, 'ERR_NGROK_18021'])
})
