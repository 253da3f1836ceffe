import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { Secret } from '../../../src/base/secret.ts'
import { JoinError, joinGateway } from '../../../src/join/join-client.ts'
import { parseJoinString } from '../../../src/join/join-string.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import type { RunningGateway } from '../../helpers/running-gateway.ts'

const HOUR_MS = 3_600_000
let claims = 0

describe.skipIf(!hasPostgres)('invitations of a site with two gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  async function startTwo() {
    const cluster = GatewayCluster.open(await postgres.database())
    const apiListen = { host: '127.0.0.1', port: 0 }
    const one = await cluster.start({ apiListen })
    const two = await cluster.start({ authtoken: one.authtoken, apiListen })
    return { one, two, call: (await managed(one)).call }
  }

  /** Joins through the given gateways alone, in their order. */
  function joinAt(text: string, gateways: readonly RunningGateway[]) {
    const joinString = parseJoinString(text)
    if ('problem' in joinString) throw new Error(joinString.problem)
    claims += 1
    return joinGateway({
      joinString: { ...joinString, addresses: gateways.map(({ addresses }) => addresses.agent) },
      claim: new Secret(`claim-${claims}`.padEnd(22, 'x')),
      hostname: 'cam',
      clock: systemClock,
    })
  }

  it('are good at both, and never for more devices than they say', async () => {
    const { one, two, call } = await startTwo()
    const { body: made } = await call('POST', '/invites', {
      domain: '*.{name}.site.test',
      max_uses: 3,
      expires_at: new Date(Date.now() + HOUR_MS).toISOString(),
    })
    // At once: the other gateway may not have the row in its copy yet.
    const first = await joinAt(made.join_string, [two])
    expect(first.name).toBe('cam')
    const outcomes = await Promise.allSettled(
      Array.from({ length: 8 }, (_, n) => joinAt(made.join_string, [n % 2 === 0 ? one : two])),
    )
    const names = outcomes.flatMap((it) => (it.status === 'fulfilled' ? [it.value.name] : []))
    expect(names.sort()).toEqual(['cam-2', 'cam-3'])
    const problems = outcomes.flatMap((it) =>
      it.status === 'rejected' && it.reason instanceof JoinError ? [it.reason.problem] : [],
    )
    expect(problems).toEqual(Array.from({ length: 6 }, () => 'used'))
    expect((await call('GET', `/invites/${made.id}`)).body).toMatchObject({
      uses: 3,
      state: 'used',
    })
    expect(
      (await call('GET', '/bot_users?filter=obj.name.startsWith("cam")')).body.bot_users,
    ).toHaveLength(3)
  })

  it('send a device to the other gateway while one is draining', async () => {
    const { one, two, call } = await startTwo()
    const { body: made } = await call('POST', '/invites', { domain: '*.{name}.site.test' })
    const id = nodeIn(one.gateway)?.nodeId
    expect((await call('POST', `/nodes/${id}/drain`)).status).toBeLessThan(300)
    await eventually(() => expect(one.gateway.parts.drain.isOn).toBe(true))
    const joined = await joinAt(made.join_string, [one, two])
    expect(joined.serverAddrs[0]).toContain(two.addresses.agent.host)
  })
})
