import { describe, expect, it } from 'vitest'
import { ONLY_NODE } from '../../../../src/gateway/ports/other-gateways.ts'
import { type NodesDeps, nodes } from '../../../../src/gateway/resources/nodes/routes.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

describe('nodes of a gateway that is the only one', () => {
  it('are itself, with what it does', async () => {
    const { call } = await startManagementApi()
    const { status, body } = await call('GET', '/nodes')
    expect(status).toBe(200)
    expect(body.nodes).toHaveLength(1)
    expect(body.nodes[0]).toMatchObject({
      ...{
        id: ONLY_NODE,
        state: 'live',
        is_self: true,
        is_reached: true,
        lease: null,
        drain: null,
        drain_given_up: null,
      },
      ...{ agents: 0, endpoints: 0, version: '0.0.0-test' },
    })
    expect(body.nodes[0].load.memory_bytes).toBeGreaterThan(0)
    expect((await call('GET', `/nodes/${ONLY_NODE}`)).body.name).toBe(body.nodes[0].name)
  })

  it('are not drained: nobody would take over', async () => {
    const { call } = await startManagementApi()
    expect(await call('POST', `/nodes/${ONLY_NODE}/drain`)).toMatchObject({
      status: 409,
      body: { error_code: 'ERR_NGROK_841' },
    })
  })

  it('are not forgotten: it is there', async () => {
    const { call } = await startManagementApi()
    expect(await call('DELETE', `/nodes/${ONLY_NODE}`)).toMatchObject({
      status: 409,
      body: { error_code: 'ERR_NGROK_844' },
    })
  })

  it('are for those who look after everybody', async () => {
    const { call, issuer } = await startManagementApi()
    const bot = await issuer.createBotUser({ name: 'somebody' })
    const { token } = await issuer.createApiKey({ ownerId: bot.id, isOwnerOnly: true })
    expect((await call('GET', '/nodes', { key: token })).body.nodes).toEqual([])
    expect((await call('GET', `/nodes/${ONLY_NODE}`, { key: token })).status).toBe(404)
  })
})

it('keeps a lost gateway that has linked since it was looked up', async () => {
  const seen = { id: 'nd_lost', name: 'two', isSelf: false, standing: 'lost', isLinked: false }
  const now = { ...seen, isLinked: true }
  const forgotten: string[] = []
  const { remove } = nodes({
    others: {
      find: () => now,
      forget: async (id: string) => {
        forgotten.push(id)
        return true
      },
    },
    drain: {},
    database: { change: async (change: () => void) => change() },
  } as unknown as NodesDeps)
  const item = seen as unknown as Parameters<NonNullable<typeof remove>>[0]
  await expect((async () => remove?.(item))()).rejects.toMatchObject({ code: 844 })
  expect(forgotten).toEqual([])
})
