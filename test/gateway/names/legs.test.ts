import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { DEAF } from '../../../src/muxado/stream.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import type { RunningGateway } from '../../helpers/running-gateway.ts'

const HOST = 'cam.site.test'
const VISITS = 60

/** As SDKs bind again: with the options and the token of the answer. */
const again = ({ Id, Proto, Opts, Extra }: RpcAnswer) => ({
  ...{ Id, Proto, Opts, ForwardsTo: 'localhost:1' },
  Extra: { Token: (Extra as { Token: string }).Token, Metadata: '' },
})

describe.skipIf(!hasPostgres)('agents of a cluster that bind again', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it.each([
    ['that says no device', ''],
    ['that says its device', JSON.stringify({ device_id: 'cam' })],
  ])('as legs of one client %s: one serves, and the other when that ends', async (_, Metadata) => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start()
    const two = await cluster.start({ authtoken: one.authtoken })
    const stops: string[] = []
    let isOver = false
    onTestFinished(() => {
      isOver = true
    })

    const connect = async (at: RunningGateway, LegNumber: number, clientId: string) => {
      const agent = await RawAgent.connect(at, {
        onStream(type, stream) {
          if (type === 9) stops.push(`leg ${LegNumber}`)
          stream.handler = {
            ...DEAF,
            onData(chunk) {
              if (!String(chunk).includes('GET / ')) return
              const text = `leg ${LegNumber}`
              stream.write(
                Buffer.from(`HTTP/1.1 200 OK\r\ncontent-length: ${text.length}\r\n\r\n${text}`),
              )
            },
          }
        },
      })
      const answer = await agent.auth(one.authtoken.reveal(), { LegNumber, Metadata }, clientId)
      return { agent, clientId: String(answer.ClientId) }
    }
    let reconnects = 0
    /** A leg that comes back whenever its connection ends, as the SDK's does. */
    const keep = async (at: RunningGateway, leg: number, clientId: string, bound: RpcAnswer) => {
      const { agent } = await connect(at, leg, clientId)
      expect(await agent.rpc(1, again(bound))).toMatchObject({ Id: bound.Id, URL: bound.URL })
      void agent.session.closed.then(() => {
        reconnects += 1
        if (!isOver) keep(at, leg, clientId, bound).catch(() => {})
      })
      return agent
    }
    const visit = async ({ addresses: { https, caCertPath } }: RunningGateway) => {
      const { status, text } = await publicRequest({
        ...{ ingress: `https://${https.host}:${https.port}`, address: https.host, host: HOST },
        ca: readFileSync(caCertPath, 'utf8'),
      })
      return `${status} ${text}`
    }

    const first = await connect(one, 0, '')
    const bound = await first.agent.bind(HOST)
    await eventually(async () => expect(await visit(two)).toBe('200 leg 0'))
    const second = await keep(two, 1, first.clientId, bound)
    void first.agent.session.closed.then(() => {
      reconnects += 1
    })
    const seen = new Set<string>()
    for (let at = 0; at < VISITS; at += 1) {
      for (const gateway of [one, two]) seen.add(await visit(gateway))
    }
    expect([...seen]).toEqual(['200 leg 0'])
    expect(reconnects).toBe(0)

    first.agent.cut()
    for (const gateway of [one, two]) expect(await visit(gateway)).toBe('200 leg 1')
    await keep(one, 0, first.clientId, bound)
    for (const gateway of [one, two]) expect(await visit(gateway)).toBe('200 leg 1')
    second.cut()
    for (const gateway of [one, two]) expect(await visit(gateway)).toMatch(/^200 leg/)
    await eventually(() => expect(reconnects).toBe(2))
    expect(stops).toEqual([])
  })

  it('hear 803, and no stop, when they bind again while no name can be claimed', async () => {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start(address)
    const one = await GatewayCluster.open(address).start({ through: proxy.address })
    const first = await RawAgent.connect(one)
    const { ClientId } = await first.auth(one.authtoken.reveal())
    const bound = await first.bind(HOST)
    first.cut()
    const types: number[] = []
    const next = await RawAgent.connect(one, { onStream: (type) => types.push(type) })
    await next.auth(one.authtoken.reveal(), {}, String(ClientId))
    proxy.refuse()
    proxy.cut()
    // The gateway has only the name of `bound`.
    const other = { ...again(bound), Opts: { Domain: 'other.site.test' } }
    expect(codeOf(await next.rpc(1, other))).toBe('ERR_NGROK_803')
    // A stop would have come before this answer.
    expect(codeOf(await next.rpc(2, { Id: bound.Id }))).toBe('ERR_NGROK_333')
    expect(types).toEqual([])
    proxy.heal()
    expect(await next.rpc(1, other)).toMatchObject({ Id: bound.Id })
  })
})
