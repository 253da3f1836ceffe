import { describe, expect, it } from 'vitest'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

const HOST = 'a.site.test'
const answering = (status_code: number) =>
  JSON.stringify({
    on_http_request: [
      { actions: [{ type: 'custom-response', config: { status_code, body: 'x' } }] },
    ],
  })
const idOf = ({ Extra }: RpcAnswer) => (Extra as { readonly TunnelID: string }).TunnelID

async function startAgent() {
  const running = await startGateway({ apiListen: { host: '127.0.0.1', port: 0 } })
  const { call } = await managed(running)
  const agent = await RawAgent.connect(running)
  await agent.auth(running.authtoken.reveal())
  const bind = (more: object = {}, opts: object = {}) =>
    agent.bind(HOST, { Opts: { Domain: HOST, ...opts }, Extra: { Name: 'one', ...more } })
  const patch = (TunnelId: string, change: object) => agent.rpc(10, { TunnelId, ...change })
  const shown = async () => (await call('GET', '/endpoints')).body as { endpoints: object[] }
  const visit = async () => {
    const ingress = `http://${formatListenAddress(running.addresses.http)}`
    return (await publicRequest({ ingress, host: HOST })).status
  }
  return { running, agent, bind, patch, shown, visit }
}

describe('PatchTunnelState', () => {
  it('changes what it names, and leaves the rest', async () => {
    const { bind, patch, shown, visit, running } = await startAgent()
    const opts = { TrafficPolicy: answering(201) }
    const bound = await bind({ Description: 'first', Metadata: 'm' }, opts)
    expect(await visit()).toBe(201)
    const { registry } = running.gateway.parts
    const before = registry.find(String(bound.Id))
    expect(await patch(idOf(bound), { Name: 'two', TrafficPolicy: answering(202) })).toEqual({
      Error: '',
    })
    expect((await shown()).endpoints).toMatchObject([
      {
        ...{ id: bound.Id, name: 'two', description: 'first', metadata: 'm' },
        ...{ traffic_policy: answering(202), traffic: { requests: 1 } },
      },
    ])
    expect(await visit()).toBe(202)
    expect(await patch(idOf(bound), { Name: '', Description: 'second' })).toEqual({ Error: '' })
    expect((await shown()).endpoints).toMatchObject([{ name: '', description: 'second' }])
    expect(await visit()).toBe(202)
    expect(registry.find(String(bound.Id))?.traffic).toBe(before?.traffic)
    expect(before?.traffic).toMatchObject({ requests: 3, active: 0 })
  })

  it('keeps what the options of the bind protect, and what limits have counted', async () => {
    const { bind, patch, visit } = await startAgent()
    const limited = (body: string) =>
      JSON.stringify({
        on_http_request: [
          {
            actions: [
              {
                type: 'rate-limit',
                config: {
                  name: 'n',
                  algorithm: 'sliding_window',
                  capacity: 1,
                  rate: '60s',
                  bucket_key: ['conn.client_ip'],
                },
              },
              { type: 'custom-response', config: { status_code: 200, body } },
            ],
          },
        ],
      })
    const bound = await bind({}, { TrafficPolicy: limited('a') })
    expect([await visit(), await visit()]).toEqual([200, 429])
    await patch(idOf(bound), { TrafficPolicy: limited('b') })
    expect(await visit()).toBe(429)
    const denied = { IPRestriction: { allow_cidrs: ['192.0.2.0/24'], deny_cidrs: null } }
    const other = await startAgent()
    const protectedBind = await other.bind({}, { ...denied, TrafficPolicy: answering(201) })
    expect(await other.visit()).toBe(403)
    expect(await other.patch(idOf(protectedBind), { TrafficPolicy: '' })).toEqual({ Error: '' })
    expect(await other.visit()).toBe(403)
  })

  it('is refused for what is wrong with it, and then changes nothing', async () => {
    const { agent, bind, patch, shown, visit } = await startAgent()
    const bound = await bind({}, { TrafficPolicy: answering(201) })
    const id = idOf(bound)
    const tries: [id: string, change: object, code: string][] = [
      ['tn_none', { Name: 'x' }, 'ERR_NGROK_333'],
      [id, { TrafficPolicy: '{"on_http_request": 1}' }, 'ERR_NGROK_9026'],
      [id, { Name: 'x'.repeat(256) }, 'ERR_NGROK_301'],
      [id, { Metadata: 'x'.repeat(4_097) }, 'ERR_NGROK_301'],
      [id, { URL: 'https://b.site.test' }, 'ERR_NGROK_301'],
      [id, { Name: 7 }, 'ERR_NGROK_301'],
    ]
    for (const [tunnel, change, code] of tries) {
      expect(codeOf(await patch(tunnel, change)), JSON.stringify(change)).toBe(code)
    }
    expect((await shown()).endpoints).toMatchObject([{ name: 'one' }])
    expect(await visit()).toBe(201)
    await agent.rpc(2, { Id: bound.Id, Extra: null })
    expect(codeOf(await patch(id, { Name: 'x' }))).toBe('ERR_NGROK_333')
  })

  it('takes an endpoint into a pool and out of it', async () => {
    const { agent, bind, patch, shown } = await startAgent()
    const first = await bind()
    const second = { PoolingEnabled: true }
    expect(codeOf(await bind(second))).toBe('ERR_NGROK_18016')
    expect(await patch(idOf(first), { PoolingEnabled: true })).toEqual({ Error: '' })
    const joined = await bind(second)
    expect(joined.Error ?? '').toBe('')
    expect((await shown()).endpoints).toHaveLength(2)
    // Nobody is alone on an address that others share.
    expect(codeOf(await patch(idOf(first), { PoolingEnabled: false }))).toBe('ERR_NGROK_18017')
    await agent.rpc(2, { Id: joined.Id, Extra: null })
    expect(await patch(idOf(first), { PoolingEnabled: false })).toEqual({ Error: '' })
    expect((await shown()).endpoints).toMatchObject([{ id: first.Id, pooling_enabled: false }])
  })

  it('makes changes of one endpoint one after the other', async () => {
    const { bind, patch, shown } = await startAgent()
    const id = idOf(await bind())
    const answers = await Promise.all([
      patch(id, { TrafficPolicy: answering(201) }),
      patch(id, { Name: 'two' }),
      patch(id, { Description: 'three' }),
    ])
    expect(answers).toEqual([{ Error: '' }, { Error: '' }, { Error: '' }])
    expect((await shown()).endpoints).toMatchObject([
      { name: 'two', description: 'three', traffic_policy: answering(201) },
    ])
  })
})
