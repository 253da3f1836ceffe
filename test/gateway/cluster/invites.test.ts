import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { hashToken, Secret } from '../../../src/base/secret.ts'
import { JoinError, type Joined, joinGateway } from '../../../src/join/join-client.ts'
import { parseJoinString } from '../../../src/join/join-string.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { connectSdk, type RunningGateway, sdkCode } from '../../helpers/running-gateway.ts'

const HOUR_MS = 3_600_000
let claims = 0

describe.skipIf(!hasPostgres)('invitations of a site with two gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  async function startTwo() {
    const address = await postgres.database()
    const way = await ChaosProxy.start(address)
    const cluster = GatewayCluster.open(address)
    const apiListen = { host: '127.0.0.1', port: 0 }
    const one = await cluster.start({ apiListen })
    const authtoken = one.authtoken
    const two = await cluster.start({ authtoken, apiListen, through: way.address })
    return { one, two, way, call: (await managed(one)).call }
  }

  /** Joins through the given gateways alone, in their order. */
  function joinAt(
    text: string,
    gateways: readonly RunningGateway[],
    earlierAuthtoken?: Secret,
  ): Promise<Joined> {
    const joinString = parseJoinString(text)
    if ('problem' in joinString) throw new Error(joinString.problem)
    claims += 1
    return joinGateway({
      joinString: { ...joinString, addresses: gateways.map(({ addresses }) => addresses.agent) },
      claim: new Secret(`claim-${claims}`.padEnd(22, 'x')),
      hostname: 'cam',
      earlierAuthtoken,
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

  it('end the old authtoken everywhere when the device uses its new one, also without PostgreSQL', async () => {
    const { one, two, way, call } = await startTwo()
    const invite = async () =>
      (await call('POST', '/invites', { domain: '*.{name}.site.test' })).body.join_string
    const isIn = ({ gateway }: RunningGateway, hash: string) =>
      [...gateway.parts.sessions.all()].some(({ identity }) => identity.tokenHash === hash)
    const [text, again] = [await invite(), await invite()]
    const old = await joinAt(text, [one])
    const fresh = await joinAt(again, [one], old.authtoken)
    const id = fresh.authtoken.reveal().split('_')[0]
    await eventually(() =>
      expect(two.gateway.parts.credentials.get(`cr_${id}`)?.successor).toBeTruthy(),
    )
    await connectSdk(one, { authtoken: old.authtoken })
    const oldHash = hashToken(old.authtoken.reveal())
    expect(isIn(one, oldHash)).toBe(true)
    way.refuse()
    way.cut()
    // The other gateway lets the device in, and ends the old authtoken when it reaches PostgreSQL.
    await connectSdk(two, { authtoken: fresh.authtoken })
    expect(isIn(one, oldHash)).toBe(true)
    way.heal()
    await eventually(() => expect(isIn(one, oldHash)).toBe(false))
    for (const at of [one, two]) {
      expect(await sdkCode(connectSdk(at, { authtoken: old.authtoken }))).toBe('ERR_NGROK_107')
      expect(await sdkCode(connectSdk(at, { authtoken: fresh.authtoken }))).toBeUndefined()
    }
  })
})
