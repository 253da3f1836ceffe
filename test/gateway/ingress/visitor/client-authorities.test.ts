import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { managed } from '../../../helpers/managed-gateway.ts'
import { publicRequest } from '../../../helpers/public-request.ts'
import { codeOf, RawAgent } from '../../../helpers/raw-agent.ts'
import { startGateway } from '../../../helpers/running-gateway.ts'
import { createAuthority } from '../../../helpers/tls-fixture.ts'

const authority = await createAuthority()
const stranger = await createAuthority()
const good = await authority.issue({ name: 'press.test', purpose: 'client' })
const bad = await stranger.issue({ name: 'press.test', purpose: 'client' })

const policyFor = (id: string) =>
  JSON.stringify({
    on_tcp_connect: [
      {
        actions: [{ type: 'terminate-tls', config: { mutual_tls_certificate_authorities: [id] } }],
      },
    ],
    on_http_request: [
      { actions: [{ type: 'custom-response', config: { status_code: 200, body: 'in' } }] },
    ],
  })

async function startSite() {
  const running = await startGateway()
  const { call } = await managed(running)
  const make = async (path: string, body: object, key?: string) => {
    const answer = await call('POST', path, body, key)
    expect([path, answer.status, answer.body]).toMatchObject([path, 201, {}])
    return answer.body
  }
  const tenant = async (name: string) => {
    const { id } = await make('/bot_users', { name })
    await make('/reserved_domains', { domain: `*.${name}.test`, owner_id: id })
    const { token } = await make('/credentials', { owner_id: id })
    const { token: key } = await make('/api_keys', { owner_id: id, owner_only: true })
    return { id, key, token }
  }
  const visit = (host: string, client?: typeof good) =>
    publicRequest({
      ingress: `https://127.0.0.1:${running.addresses.https.port}`,
      ca: readFileSync(running.addresses.caCertPath, 'utf8'),
      host,
      ...(client && { client }),
    }).then(
      ({ text }) => text,
      () => 'refused',
    )
  const bind = async (token: string, host: string, policy: string) => {
    const agent = await RawAgent.connect(running)
    await agent.auth(token)
    return agent.bind(host, { Proto: 'https', Opts: { Domain: host, TrafficPolicy: policy } })
  }
  return { running, call, make, tenant, visit, bind }
}

describe('client certificates of an authority that a policy names by id', () => {
  it('let visitors in, until the authority is deleted', async () => {
    const { call, make, visit } = await startSite()
    const { id } = await make('/certificate_authorities', { ca_pem: authority.caPem })
    const url = 'https://c.site.test'
    await make('/endpoints', { url, traffic_policy: policyFor(id) })
    const visits = async () => [
      await visit('c.site.test', good),
      await visit('c.site.test', bad),
      await visit('c.site.test'),
    ]
    expect(await visits()).toEqual(['in', 'refused', 'refused'])
    await call('PATCH', `/certificate_authorities/${id}`, { description: 'press' })
    expect(await visits()).toEqual(['in', 'refused', 'refused'])
    await call('DELETE', `/certificate_authorities/${id}`)
    expect(await visits()).toEqual(['refused', 'refused', 'refused'])
  })

  it('let visitors of another account in only if it is the authority of the gateway', async () => {
    const { call, make, tenant, visit, bind } = await startSite()
    const [a, b] = [await tenant('a'), await tenant('b')]
    const authorities = '/certificate_authorities'
    const { id: own } = await make(authorities, { ca_pem: authority.caPem }, a.key)
    const { id: shared } = await make(authorities, { ca_pem: authority.caPem })
    const url = 'https://x.b.test'
    const refused = await call('POST', '/endpoints', { url, traffic_policy: policyFor(own) }, b.key)
    expect(refused.body.msg).toContain(`The account has no certificate authority ${own}.`)
    expect(codeOf(await bind(b.token, 'y.b.test', policyFor(own)))).toBe('ERR_NGROK_9026')
    expect(codeOf(await bind(a.token, 'y.a.test', policyFor(own)))).toBeUndefined()
    await make('/endpoints', { url, traffic_policy: policyFor(shared) }, b.key)
    expect(await visit('x.b.test', good)).toBe('in')
    expect(await visit('x.b.test', bad)).toBe('refused')
    expect(await visit('y.a.test', good)).not.toBe('refused')
    expect(await visit('y.a.test')).toBe('refused')
  })

  it('let nobody in after a restart without the authority', async () => {
    const { running, call, make, visit } = await startSite()
    const { id } = await make('/certificate_authorities', { ca_pem: authority.caPem })
    const url = 'https://c.site.test'
    await make('/endpoints', { url, traffic_policy: policyFor(id) })
    await call('DELETE', `/certificate_authorities/${id}`)
    expect(await visit('c.site.test', good)).toBe('refused')
    await running.gateway.stop()
    const again = await startGateway({ dataDir: running.dataDir, authtoken: running.authtoken })
    const ingress = `https://127.0.0.1:${again.addresses.https.port}`
    const ca = readFileSync(again.addresses.caCertPath, 'utf8')
    const seen = await publicRequest({ ingress, ca, host: 'c.site.test', client: good })
    expect(seen.status).toBeGreaterThanOrEqual(400)
  })
})
