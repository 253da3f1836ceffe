import { describe, expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

const DEVICE = JSON.stringify({ device_id: 'cam' })
const POLICY = JSON.stringify({
  on_http_request: [{ actions: [{ type: 'deny', config: { status_code: 403 } }] }],
})

/** A device of a bot user with its own domain and these quotas. */
async function startDevice(quotas: Record<string, number>) {
  const running = await startGateway()
  const { issuer, registrar, registry } = running.gateway.parts
  const user = await issuer.createBotUser({ name: 'press' })
  const setQuotas = (change: Record<string, number>) =>
    issuer.updateBotUser(user, { quotas: change })
  await setQuotas(quotas)
  await registrar.reserve({ domain: '*.quota.test', ownerId: user.id })
  const { authtoken } = await issuer.createCredential({
    ownerId: user.id,
    acl: ['bind:*.quota.test'],
  })
  const connect = async () => {
    const agent = await RawAgent.connect(running)
    const answer = await agent.auth(authtoken.reveal(), { Metadata: DEVICE })
    if (answer.Error) throw new Error(answer.Error)
    return agent
  }
  return { connect, setQuotas, registry }
}

describe('the quotas of an account', () => {
  it('bound what its devices have online, also of many binds at once', async () => {
    const { connect, registry } = await startDevice({ online_endpoints: 2 })
    const agent = await connect()
    const names = ['a', 'b', 'c', 'd'].map((label) => `${label}.quota.test`)
    const answers = await Promise.all(names.map((name) => agent.bind(name)))
    const refused = answers.filter((it) => codeOf(it) !== undefined)
    expect(refused.map(codeOf)).toEqual(['ERR_NGROK_18021', 'ERR_NGROK_18021'])
    expect(String(refused[0]?.Error)).toMatch(/\(online_endpoints\): 2 of 2 used, 1 more needed/)
    expect(registry.size).toBe(2)
  })

  it('leave a device what it has when they are lowered, also when it comes back', async () => {
    const { connect, setQuotas, registry } = await startDevice({ online_endpoints: 2 })
    const before = await connect()
    await before.bind('a.quota.test')
    await before.bind('b.quota.test')
    await setQuotas({ online_endpoints: 0 })
    expect(registry.size).toBe(2)
    before.cut()
    await eventually(() => expect(registry.size).toBe(0))
    const after = await connect()
    expect(codeOf(await after.bind('a.quota.test'))).toBeUndefined()
    expect(codeOf(await after.bind('b.quota.test'))).toBeUndefined()
    expect(codeOf(await after.bind('c.quota.test'))).toBe('ERR_NGROK_18021')
  })

  it('bound the bytes of the policies that its devices send', async () => {
    const bytes = Buffer.byteLength(POLICY)
    const { connect } = await startDevice({ policy_bytes: 2 * bytes })
    const agent = await connect()
    const bind = (label: string, policy = POLICY) =>
      agent.bind(`${label}.quota.test`, {
        Opts: { Domain: `${label}.quota.test`, TrafficPolicy: policy },
      })
    expect(codeOf(await bind('a'))).toBeUndefined()
    expect(codeOf(await bind('b', `${POLICY} `))).toBe('ERR_NGROK_18021')
    expect(codeOf(await bind('b'))).toBeUndefined()
    expect(codeOf(await agent.bind('c.quota.test'))).toBeUndefined()
    agent.cut()
    const again = await connect()
    expect(codeOf(await again.bind('c.quota.test'))).toBeUndefined()
  })
})
