import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { rejectionCode } from '../../helpers/service-code.ts'
import { openNode } from '../cluster/replication/open-node.ts'

const DENY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })
const ACTOR = { kind: 'api-key', id: 'ak_1', name: 'somebody' } as const

type Stores = ReturnType<typeof openGatewayStores>

let postgres: TestPostgres | undefined
beforeAll(async () => {
  if (hasPostgres) postgres = await TestPostgres.shared()
})
afterAll(() => postgres?.remove())

const ENGINES: [name: string, isThere: boolean, open: () => Promise<Stores>][] = [
  ['a file of its own', true, async () => openGatewayStores()],
  [
    'PostgreSQL',
    hasPostgres,
    async () => {
      if (!postgres) throw new Error('there is no PostgreSQL')
      return openNode(await postgres.database())
    },
  ],
]

describe.each(ENGINES)('records in %s', (_name, isThere, open) => {
  describe.skipIf(!isThere)('as its stores have them', () => {
    it('are there as soon as a change answers, in their order', async () => {
      const { issuer, registrar, addrRegistrar, botUsers, credentials, ...stores } = await open()
      const owner = await issuer.createBotUser({ name: 'pressé \u0000 "x"' })
      expect(botUsers.findByName('pressé \u0000 "x"')).toEqual(owner)
      const acl = ['bind:*.site.test']
      const { credential, authtoken } = await issuer.createCredential({ ownerId: owner.id, acl })
      expect(credentials.get(credential.id)).toEqual(credential)
      expect(stores.authority.authenticate(authtoken.reveal())).toEqual(credential)
      const { apiKey, token } = await issuer.createApiKey({ expiresAt: 8e15 })
      expect(stores.authority.authenticateApiKey(token.reveal())).toEqual(apiKey)
      const domain = await registrar.reserve({ domain: '*.site.test', ownerId: owner.id })
      expect(stores.authority.owners.reservationOf('cam.site.test')).toEqual(domain)
      const addr = await addrRegistrar.reserve({ ownerId: owner.id })
      expect(stores.reservedAddrs.find(addr.addr)).toEqual(addr)
      const others = [await issuer.createCredential({}), await issuer.createCredential({})]
      const ids = [credential, ...others.map((it) => it.credential)].map(({ id }) => id)
      expect(credentials.page({ limit: 10 }).map(({ id }) => id)).toEqual(ids.toReversed())
    })

    it('are changed one after the other, and gone with their owner', async () => {
      const { issuer, registrar, cloudEndpoints, ...stores } = await open()
      const owner = await issuer.createBotUser({ name: 'a' })
      const { credential } = await issuer.createCredential({ ownerId: owner.id })
      await issuer.updateCredential(credential, { description: 'd' })
      await issuer.updateCredential(credential, { metadata: 'm' })
      expect(stores.credentials.get(credential.id)).toMatchObject({
        description: 'd',
        metadata: 'm',
      })
      const domain = await registrar.reserve({ domain: '*.site.test', ownerId: owner.id })
      const url = 'https://front.site.test'
      await cloudEndpoints.create({ url, trafficPolicy: DENY }, { isGranted: true })
      const hook = { ownerId: owner.id, url: 'https://a.test', description: '', eventTypes: [] }
      await stores.webhooks.create(hook)
      stores.changedCredentials.splice(0)
      await issuer.deleteBotUser(owner)
      expect(stores.credentials.page({ limit: 1 })).toEqual([])
      expect(stores.webhooks.all()).toEqual([])
      expect(stores.domains.get(domain.id)?.ownerId).toBeNull()
      expect([...stores.registry.all()]).toEqual([])
      expect(stores.changedCredentials).toEqual([credential.id])
    })

    it('refuse what cannot be, and nothing of it is left', async () => {
      const { issuer, registrar, database, botUsers, domains, ...stores } = await open()
      await registrar.reserve({ domain: '*.site.test' })
      expect(await rejectionCode(registrar.reserve({ domain: '*.SITE.test' }))).toBe(413)
      expect(await rejectionCode(issuer.createCredential({ ownerId: 'bot_none' }))).toBe(634)
      await issuer.createBotUser({ name: 'a' })
      const half = database.change(() => {
        botUsers.insert({ id: 'bot_2', name: 'b', active: true, quotas: {}, createdAt: 0 })
        botUsers.insert({ id: 'bot_3', name: 'a', active: true, quotas: {}, createdAt: 0 })
      })
      await expect(half).rejects.toThrow('UNIQUE')
      const orphan = { id: 'ipr_1', ipPolicyId: 'ipp_none', cidr: '10.0.0.0/8', action: 'deny' }
      const foreign = database.change(() =>
        stores.ipPolicyRules.insert({
          ...orphan,
          action: 'deny',
          description: '',
          metadata: '',
          createdAt: 0,
        }),
      )
      await expect(foreign).rejects.toThrow('FOREIGN KEY')
      expect(botUsers.page({ limit: 10 }).map(({ name }) => name)).toEqual(['a'])
      expect(domains.all()).toHaveLength(1)
    })

    it('give what many want at once to one', async () => {
      const { issuer, registrar, botUsers, domains } = await open()
      const outcomes = await Promise.allSettled([
        ...Array.from({ length: 5 }, () => issuer.createBotUser({ name: 'same' })),
        ...Array.from({ length: 5 }, () => registrar.reserve({ domain: '*.site.test' })),
        ...Array.from({ length: 20 }, (_, n) => issuer.createBotUser({ name: `own ${n}` })),
      ])
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(22)
      expect(botUsers.page({ limit: 100 })).toHaveLength(21)
      expect(domains.all()).toHaveLength(1)
    })

    it('have who changed what in the same transaction', async () => {
      const { issuer, trail } = await open()
      const change = { actor: ACTOR, client: null, action: 'bot_user.create' }
      const codeOf = (error: unknown) => (error as { errorCode: string }).errorCode
      const noted = (name: string) =>
        trail.run(change, () => issuer.createBotUser({ name }), {
          about: ({ id }) => ({ targetId: id }),
          codeOf,
        })
      const made = await noted('a')
      await expect(noted('a')).rejects.toThrow('already')
      expect(trail.page({ limit: 10 })).toMatchObject([
        { action: 'bot_user.create', result: 'ERR_NGROK_4112' },
        { action: 'bot_user.create', result: 'ok', targetId: made.id },
      ])
    })

    it('number events without a gap, and give no number twice', async () => {
      const { database, events } = await open()
      const heard: number[] = []
      events.onAppend(() => heard.push(events.newest))
      const event = { at: 5, type: 'device.online', ownerId: null, details: { n: 1 } } as const
      for (let n = 0; n < 3; n += 1) await database.change(() => events.append(event))
      const undone = database.change(() => {
        events.append(event)
        throw new Error('stop')
      })
      await expect(undone).rejects.toThrow('stop')
      await database.change(() => events.append(event))
      expect(events.after(0, 10).map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4])
      expect(heard).toEqual([1, 2, 3, 4])
    })
  })
})
