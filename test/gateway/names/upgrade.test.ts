import { expect, it } from 'vitest'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

/** A database as a gateway left it that allowed overlaps, with `*.site.test` made first. */
async function oldDatabase() {
  const { folder, issuer, registrar, domains, database, clock } = openGatewayStores()
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
  database.close()
  return { folder, older, newer, wide, narrow, apart }
}

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
