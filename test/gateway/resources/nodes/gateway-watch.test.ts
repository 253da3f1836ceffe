import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { SECRETS_KEY } from '../../../../src/gateway/access/secret-seal.ts'
import type { Readiness } from '../../../../src/gateway/ports/membership.ts'
import type { SeenGateway } from '../../../../src/gateway/ports/other-gateways.ts'
import { GatewayWatch } from '../../../../src/gateway/resources/nodes/gateway-watch.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'

const MINUTE = 60_000

function open() {
  const stores = openGatewayStores()
  const { clock, events, others, log } = stores
  const state: { readiness: Readiness; fault: Error | undefined } = {
    readiness: { state: 'ready' },
    fault: undefined,
  }
  const seen: SeenGateway[] = [...others.all()]
  const database: typeof stores.database = Object.create(stores.database, {
    change: {
      value: (change: () => unknown, options: object) =>
        state.fault ? Promise.reject(state.fault) : stores.database.change(change, options),
    },
  })
  const watch = new GatewayWatch({
    ...{ database, events, seal: stores.seal, clock, log },
    member: state,
    others: { self: others.self, all: () => seen },
  })
  watch.start()
  onTestFinished(() => watch.stop())
  const told = () =>
    events
      .after(0, 10)
      .map(({ type, details }) => [type, (details.node as { id: string }).id, details.text])
  return { ...stores, state, seen, watch, told, self: others.self }
}

it('reports a problem that lasts a minute, and its end', async () => {
  const { clock, state, told, self } = open()
  state.readiness = { state: 'degraded', reasons: ['The disk is full.'] }
  await clock.advance(45_000)
  state.readiness = { state: 'ready' }
  await clock.advance(2 * MINUTE)
  expect(told()).toEqual([])
  state.readiness = { state: 'degraded', reasons: ['The disk is full.'] }
  await clock.advance(3 * MINUTE)
  expect(told()).toEqual([['gateway.degraded', self, 'The disk is full.']])
  state.readiness = { state: 'ready' }
  await clock.advance(MINUTE)
  expect(told()).toEqual([
    ['gateway.degraded', self, 'The disk is full.'],
    ['gateway.recovered', self, undefined],
  ])
})

it('reports a lost key file of secrets, and its return', async () => {
  const { clock, told, self, folder, seal, database, vaults, vaultSecrets } = open()
  const made = { ownerId: null, description: '', metadata: '', createdAt: 0, createdBy: 'ak_1' }
  const kept = { ...made, updatedAt: 0, updatedBy: 'ak_1' }
  const place = { ownerId: null, vaultId: 'vault_1', name: 'key' }
  const sealed = seal.seal('value', place)
  await database.change(() => {
    vaults.insert({ ...kept, id: 'vault_1', name: 'site' })
    vaultSecrets.insert({ ...kept, ...place, id: 'secret_1', sealed, allow: [], valueAt: 0 })
  })
  const path = join(folder, SECRETS_KEY)
  const key = readFileSync(path)
  await clock.advance(2 * MINUTE)
  expect(told()).toEqual([])
  rmSync(path)
  await clock.advance(2 * MINUTE)
  const lost = ['gateway.degraded', self, expect.stringContaining('secrets.key is missing')]
  expect(told()).toEqual([lost])
  writeFileSync(path, key)
  await clock.advance(MINUTE)
  expect(told()).toEqual([lost, ['gateway.recovered', self, undefined]])
})

it('does not report a drain, which a person wants', async () => {
  const { clock, state, seen, told } = open()
  const [own] = seen
  if (!own) throw new Error('there is no gateway')
  seen[0] = { ...own, standing: 'draining' }
  state.readiness = { state: 'away', reasons: ['This gateway is draining.'] }
  await clock.advance(5 * MINUTE)
  expect(told()).toEqual([])
})

it('reports later what could not be written', async () => {
  const { clock, state, told } = open()
  state.readiness = { state: 'away', reasons: ['No database.'] }
  state.fault = new Error('the database is away')
  await clock.advance(10 * MINUTE)
  expect(told()).toEqual([])
  state.readiness = { state: 'ready' }
  state.fault = undefined
  await clock.advance(MINUTE)
  expect(told().map(([type]) => type)).toEqual(['gateway.degraded', 'gateway.recovered'])
})

it('reports a lost gateway only on duty', async () => {
  const { clock, seen, watch, told } = open()
  const [own] = seen
  if (!own) throw new Error('there is no gateway')
  seen.push({ ...own, id: 'nd_2', name: 'two', isSelf: false, standing: 'lost' })
  await clock.advance(5 * MINUTE)
  expect(told()).toEqual([])
  watch.reclaim()
  await clock.advance(2 * MINUTE)
  expect(told()).toEqual([
    ['gateway.degraded', 'nd_2', expect.stringContaining('two does not answer')],
  ])
})

it('reports the end of a problem after a restart, once', async () => {
  const first = open()
  first.state.readiness = { state: 'degraded', reasons: ['The disk is full.'] }
  await first.clock.advance(2 * MINUTE)
  expect(first.told()).toHaveLength(1)
  first.watch.stop()
  const { clock, events, others, log, seal, database, told } = first
  const another = () => {
    const member = { readiness: { state: 'ready' } } as const
    const watch = new GatewayWatch({ database, events, member, others, seal, clock, log })
    watch.start()
    onTestFinished(() => watch.stop())
  }
  another()
  // The gateway on duty may see the end at the same time.
  another()
  await clock.advance(5 * MINUTE)
  expect(told().map(([type]) => type)).toEqual(['gateway.degraded', 'gateway.recovered'])
})

it('reports on duty that a gateway is back which another gateway reported as lost', async () => {
  const { clock, events, seen, watch, told, database } = open()
  const [own] = seen
  if (!own) throw new Error('there is no gateway')
  seen.push({ ...own, id: 'nd_2', name: 'two', isSelf: false })
  const details = { node: { id: 'nd_2', name: 'two' }, since: '2029-12-31T23:00:00.000Z' }
  const lost = { at: clock.now(), type: 'gateway.degraded', ownerId: null, details } as const
  await database.change(() => events.append(lost))
  await clock.advance(MINUTE)
  expect(told()).toHaveLength(1)
  watch.reclaim()
  await clock.advance(MINUTE)
  expect(told().map(([type, id]) => [type, id])).toEqual([
    ['gateway.degraded', 'nd_2'],
    ['gateway.recovered', 'nd_2'],
  ])
})
