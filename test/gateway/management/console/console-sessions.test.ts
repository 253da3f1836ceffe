import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { AppError } from '../../../../src/base/app-error.ts'
import {
  type SiteSessionsOptions,
  siteSessions,
} from '../../../../src/gateway/management/console/console.ts'
import {
  IDLE_MS,
  LIFETIME_MS,
  MAX_PER_HOLDER,
} from '../../../../src/http/pages/browser-sessions.ts'
import { ConsoleBrowser } from '../../../helpers/console-browser.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { GatewayCluster } from '../../../helpers/gateway-cluster.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { managed } from '../../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'
import type { RunningGateway } from '../../../helpers/running-gateway.ts'

const use = { isUse: true }
const look = { isUse: false }
const MINUTE = 60_000

const API = { host: '127.0.0.1', port: 0 }

describe.skipIf(!hasPostgres)('sessions of the console at several gateways', () => {
  let postgres: TestPostgres
  let one: RunningGateway
  let two: RunningGateway
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  const start = async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    one = await cluster.start({ apiListen: API })
    two = await cluster.start({ authtoken: one.authtoken, apiListen: API })
    const { apiKey, call } = await managed(one)
    await eventually(() => {
      const { apiKeys } = two.gateway.parts
      expect(
        apiKeys.page({ limit: 100 }).some(({ description }) => /^test/.test(description)),
      ).toBe(true)
    })
    return { key: apiKey.reveal(), call }
  }
  /** One browser at a gateway, with the cookie of another one. */
  const browserAt = ({ addresses }: RunningGateway, cookie?: string) =>
    Object.assign(new ConsoleBrowser(`http://127.0.0.1:${addresses.api?.port}`), { cookie })
  const statusAt = async (gateway: RunningGateway, cookie: string | undefined) =>
    (await browserAt(gateway, cookie).call('GET', '/console/api/nodes')).status

  it('are good at all of them, until somebody signs out at one', async () => {
    const { key } = await start()
    const browser = browserAt(one)
    expect((await browser.signIn(key)).status).toBe(201)
    const { cookie } = browser
    await eventually(async () => expect(await statusAt(two, cookie)).toBe(200))
    expect(await statusAt(one, cookie)).toBe(200)
    expect((await browserAt(two, cookie).call('DELETE', '/console/session')).status).toBe(204)
    await eventually(async () => expect(await statusAt(one, cookie)).toBe(401))
    expect(await statusAt(two, cookie)).toBe(401)
  })

  it('end with the key that speaks for them', async () => {
    const { key, call } = await start()
    const browser = browserAt(one)
    const { body } = await call('POST', '/api_keys', { description: 'for one session' })
    expect((await browser.signIn(body.token)).status).toBe(201)
    await eventually(async () => expect(await statusAt(two, browser.cookie)).toBe(200))
    await call('DELETE', `/api_keys/${body.id}`, undefined, key)
    for (const gateway of [one, two]) {
      await eventually(async () => expect(await statusAt(gateway, browser.cookie)).toBe(401))
      expect(gateway.gateway.parts.consoleSessionStore.all()).toEqual([])
    }
  })

  it('go on while PostgreSQL is away; those that begin are of one gateway, those that end are ended when it is back', async () => {
    const { key } = await start()
    const [browser, leaving] = [browserAt(one), browserAt(one)]
    await browser.signIn(key)
    await leaving.signIn(key)
    await eventually(async () => expect(await statusAt(two, leaving.cookie)).toBe(200))
    await postgres.stop()
    let restarting: Promise<void> | undefined
    const restart = () => {
      restarting ??= postgres.start()
      return restarting
    }
    onTestFinished(restart)
    for (const gateway of [one, two]) expect(await statusAt(gateway, browser.cookie)).toBe(200)
    const late = browserAt(two)
    expect((await late.signIn(key)).status).toBe(201)
    expect([await statusAt(two, late.cookie), await statusAt(one, late.cookie)]).toEqual([200, 401])
    const { cookie } = leaving
    const answer = await leaving.call('DELETE', '/console/session')
    expect([answer.status, answer.body.error_code]).toEqual([
      503,
      'ERR_GATEWAY_RECORDS_UNAVAILABLE',
    ])
    // It is over where it was ended, and the browser has it no more.
    expect(leaving.cookie).toBe('console_session=')
    expect([await statusAt(one, cookie), await statusAt(two, cookie)]).toEqual([401, 200])
    expect(answer.body.msg).toMatch(/^The session has ended at this gateway\./)
    await restart()
    await eventually(async () => expect(await statusAt(two, cookie)).toBe(401))
    expect(await statusAt(two, browser.cookie)).toBe(200)
  })

  it('are ended by strangers, who know none, a few times alone', async () => {
    await start()
    const signOut = async () => {
      const browser = browserAt(one, `console_session=${'a'.repeat(43)}`)
      const { status, body } = await browser.call('DELETE', '/console/session')
      expect(browser.cookie).toBe('console_session=')
      return { status, body }
    }
    let ended = 0
    let last = await signOut()
    for (; last.status === 204 && ended < 20; last = await signOut()) ended += 1
    expect(ended).toBeLessThanOrEqual(11)
    expect(last).toMatchObject({ status: 429, body: { error_code: 'ERR_NGROK_226' } })
    expect(last.body.msg).toMatch(/^This browser is signed out\. /)
    // Signing in is not what they did too often.
    expect((await browserAt(one).signIn('no key')).status).toBe(403)
  })
})

type Store = SiteSessionsOptions['store']

function storeOf(store: Store): Store {
  return {
    all: () => store.all(),
    find: (hash) => store.find(hash),
    insert: (session) => store.insert(session),
    noteUse: (hash, at) => store.noteUse(hash, at),
    delete: (hash) => store.delete(hash),
  }
}

describe('siteSessions', () => {
  /** Two gateways on the same rows, which cannot be changed while `isAway`. */
  async function open() {
    const { clock, database, consoleSessionStore: store, issuer } = openGatewayStores()
    const { apiKey } = await issuer.createApiKey({ description: 'test' })
    const state = { isAway: false }
    const change: typeof database.change = (work, options) =>
      state.isAway
        ? Promise.reject(new AppError('storage-unavailable', 'PostgreSQL is away.'))
        : database.change(work, options)
    const stopping = new AbortController()
    onTestFinished(() => stopping.abort())
    const { signal } = stopping
    const gateway = (of: Store = store) =>
      siteSessions({ database: { change }, store: of, signal, clock })
    const made = { one: gateway(), two: gateway(), gateway }
    return { clock, state, store, stopping, holder: apiKey.id, ...made }
  }

  it('ends a session that nobody uses at any gateway, whatever asks in the background', async () => {
    const { clock, holder, one, two } = await open()
    const id = (await one.open(holder)).reveal()
    expect(two.find(id, use)).toEqual({ holder })
    for (let minutes = 0; minutes < 60; minutes += 5) {
      await clock.advance(5 * MINUTE)
      expect(two.find(id, use)).toEqual({ holder })
    }
    // Used at the other one alone.
    expect(one.find(id, look)).toEqual({ holder })
    await clock.advance(IDLE_MS - 1)
    for (const gateway of [one, two]) expect(gateway.find(id, look)).toEqual({ holder })
    await clock.advance(1)
    for (const gateway of [one, two]) expect(gateway.find(id, use)).toBeUndefined()
  })

  it('ends every session after its time', async () => {
    const { clock, holder, one, two } = await open()
    const id = (await one.open(holder)).reveal()
    for (let ms = 0; ms < LIFETIME_MS; ms += 10 * MINUTE) {
      expect(one.find(id, use)).toEqual({ holder })
      await clock.advance(10 * MINUTE)
    }
    for (const gateway of [one, two]) expect(gateway.find(id, use)).toBeUndefined()
  })

  it('makes room for the newest sessions of a holder, and forgets those that are over', async () => {
    const { clock, holder, store, one, two } = await open()
    const ids: string[] = []
    for (let count = 0; count <= MAX_PER_HOLDER; count += 1) {
      ids.push((await one.open(holder)).reveal())
      await clock.advance(1_000)
    }
    expect(ids.map((id) => two.find(id, look) !== undefined)).toEqual([
      false,
      ...Array.from({ length: MAX_PER_HOLDER }, () => true),
    ])
    await clock.advance(IDLE_MS)
    await two.open(holder)
    expect(store.all()).toHaveLength(1)
  })

  it('counts uses without PostgreSQL at the gateway where they are', async () => {
    const { clock, state, holder, one, two } = await open()
    const id = (await one.open(holder)).reveal()
    state.isAway = true
    for (let minutes = 0; minutes < 40; minutes += 5) {
      expect(one.find(id, use)).toEqual({ holder })
      await clock.advance(5 * MINUTE)
    }
    expect(one.find(id, look)).toEqual({ holder })
    expect(two.find(id, look)).toBeUndefined()
  })

  it('takes no session for good that was closed here, whoever could not be told', async () => {
    const { state, holder, one, two } = await open()
    const id = (await one.open(holder)).reveal()
    state.isAway = true
    await expect(one.close(id)).rejects.toMatchObject({ code: 'storage-unavailable' })
    expect([one.find(id, use), two.find(id, use)]).toEqual([undefined, { holder }])
    state.isAway = false
    await one.close(id)
    expect(two.find(id, use)).toBeUndefined()
  })

  it('ends a session at the others, too, when they can be told', async () => {
    const { clock, state, holder, one, two } = await open()
    const [id, other] = [(await one.open(holder)).reveal(), (await one.open(holder)).reveal()]
    state.isAway = true
    await expect(one.close(id)).rejects.toThrow('The other gateways are told as soon as')
    await clock.advance(MINUTE)
    expect(two.find(id, look)).toEqual({ holder })
    state.isAway = false
    await clock.advance(5_000)
    expect([two.find(id, look), two.find(other, look)]).toEqual([undefined, { holder }])
  })

  it('ends a session at the others, however many are closed that are none', async () => {
    const { clock, state, store, holder, gateway, two } = await open()
    let ended = 0
    const ends: Store['delete'] = (hash) => {
      ended += 1
      return store.delete(hash)
    }
    const one = gateway({ ...storeOf(store), delete: ends })
    const id = (await one.open(holder)).reveal()
    state.isAway = true
    await expect(one.close(id)).rejects.toThrow(AppError)
    for (let n = 0; n < 1_100; n += 1) await one.close(`invented ${n}`).catch(() => {})
    expect(one.find(id, use)).toBeUndefined()
    state.isAway = false
    // Tried again every 5 s, with as many as are remembered.
    await clock.advance(4_900)
    expect(two.find(id, look)).toEqual({ holder })
    await clock.advance(100)
    expect(two.find(id, look)).toBeUndefined()
    expect(ended).toBe(1_000)
  })

  it('tries nothing again when the gateway has ended', async () => {
    const { clock, state, stopping, holder, one, two } = await open()
    const id = (await one.open(holder)).reveal()
    state.isAway = true
    await expect(one.close(id)).rejects.toThrow(AppError)
    stopping.abort()
    state.isAway = false
    await clock.advance(MINUTE)
    expect(two.find(id, look)).toEqual({ holder })
  })

  it('ends a session that it has not heard of', async () => {
    const { store, holder, one, gateway } = await open()
    const id = (await one.open(holder)).reveal()
    await gateway({ ...storeOf(store), find: () => undefined }).close(id)
    expect(one.find(id, use)).toBeUndefined()
  })

  it('ends what is of one gateway alone without the others', async () => {
    const { state, holder, one } = await open()
    state.isAway = true
    const id = (await one.open(holder)).reveal()
    await one.close(id)
    expect(one.find(id, use)).toBeUndefined()
  })
})
