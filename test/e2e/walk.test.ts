import { describe, expect, it, onTestFinished } from 'vitest'
import { startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram, startRun } from '../helpers/gateway-program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

// Names below localhost lead to this machine: the agent reaches itself, as on a site with DNS.
const WILDCARD = '*.device.localhost'
const AGENT_DOMAIN = 'agent.device.localhost'
const INSIDE = 'device123.device.localhost'
const API_TOKEN = 'walk-token-of-at-least-20'
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
const ID = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}_[0-9A-Za-z]{27}$`))

/** The steps of the management API, each answer to the letter. */
async function provision(gateway: GatewayProgram) {
  const domain = await gateway.manage('POST', '/reserved_domains', {
    domain: WILDCARD,
    region: 'us',
  })
  expect(domain.status).toBe(201)
  expect(domain.body).toMatchObject({
    id: ID('rd'),
    uri: `${gateway.ready.management_api}/reserved_domains/${domain.body.id}`,
    created_at: TIME,
    domain: WILDCARD,
    cname_target: expect.stringMatching(/^[\w-]+(\.[\w-]+)+$/),
    http_endpoint_configuration: null,
    https_endpoint_configuration: null,
    certificate: null,
    certificate_management_policy: {
      authority: expect.any(String),
      private_key_type: expect.any(String),
    },
    acme_challenge_cname_target: expect.stringMatching(/^[\w-]+(\.[\w-]+)+$/),
  })
  expect(domain.body.cname_target).not.toBe(domain.body.acme_challenge_cname_target)

  const botUser = await gateway.manage('POST', '/bot_users', { name: 'device 123' })
  const { id } = botUser.body
  const uri = `${gateway.ready.management_api}/bot_users/${id}`
  const shown = { id: ID('bot'), uri, name: 'device 123', active: true, created_at: TIME }
  expect([botUser.status, botUser.body]).toEqual([201, shown])

  const acl = [`bind:${WILDCARD}`]
  const credential = await gateway.manage('POST', '/credentials', { owner_id: id, acl })
  expect(credential.status).toBe(201)
  expect(credential.body).toMatchObject({ id: ID('cr'), acl, token: expect.any(String) })
  const again = await gateway.manage('GET', `/credentials/${credential.body.id}`)
  expect(again.body).toMatchObject({ acl, token: null })
  return credential.body as { id: string; token: string }
}

describe('the walk, with nothing stubbed', () => {
  it('takes a device in, serves it, keeps it inside its rules, takes it off', async () => {
    const folder = temporaryFolder()
    const upstream = await startEchoUpstream()
    onTestFinished(() => upstream.close())
    const gateway = await GatewayProgram.start(folder)
    const credential = await provision(gateway)
    const { agentApi } = await startRun(folder, {
      SVC_AUTHTOKEN: credential.token,
      SVC_SERVER_ADDR: gateway.ready.agent_listen,
      SVC_CA_CERT: gateway.ready.ca_cert,
      AGENT_DOMAIN,
      AGENT_API_TOKEN: API_TOKEN,
    })

    /** The agent's REST API where the fleet's owner calls it: at https://{agent_domain}. */
    const call = async (method: string, path: string, body?: object) => {
      const { status, text } = await publicRequest({
        ingress: gateway.ready.ingress_https,
        host: AGENT_DOMAIN,
        ca: gateway.ca,
        method,
        path,
        headers: {
          authorization: `Bearer ${API_TOKEN}`,
          ...(body && { 'content-type': 'application/json' }),
        },
        ...(body && { body: JSON.stringify(body) }),
      })
      return { status, body: text === '' ? undefined : JSON.parse(text) }
    }
    const create = (domain: string) => {
      const forwards_to = `localhost:${upstream.port}`
      return call('POST', '/tunnels', { protocol: 'http', forwards_to, domain })
    }
    await eventually(async () => {
      expect(await call('GET', '/tunnels')).toEqual({ status: 200, body: [] })
    })

    expect(await create(INSIDE)).toMatchObject({
      status: 200,
      body: { url: expect.stringContaining(`https://${INSIDE}`), domain: INSIDE, policy: null },
    })
    const served = await gateway.visit(INSIDE, '/a?b=c')
    expect([served.status, JSON.parse(served.text).url]).toEqual([200, '/a?b=c'])
    const listed = await call('GET', '/tunnels')
    expect(JSON.parse(listed.body[0].policy)).toHaveProperty('on_http_request')

    // One that nobody reserved, and one that is reserved for others.
    for (const outside of ['device123.other.localhost', 'device123.site.localhost']) {
      expect(await create(outside)).toMatchObject({
        status: 403,
        body: { code: 'forbidden', service_code: 'ERR_NGROK_316' },
      })
      expect((await gateway.visit(outside)).status).toBe(404)
    }
    expect((await call('GET', '/tunnels')).body).toHaveLength(1)

    const deleted = await gateway.manage('DELETE', `/credentials/${credential.id}`)
    expect(deleted.status).toBe(204)
    const gone = await gateway.visit(INSIDE)
    expect([gone.status, gone.headers['ngrok-error-code']]).toEqual([404, 'ERR_NGROK_3200'])

    await eventually(async () => {
      const answer = await fetch(`${agentApi}/status`, {
        headers: { authorization: `Bearer ${API_TOKEN}` },
      })
      const { link } = (await answer.json()) as { link: object }
      expect(link).toMatchObject({
        state: 'refused',
        reason: 'auth',
        service_code: 'ERR_NGROK_107',
        remedy: expect.stringContaining('authtoken'),
      })
    })
  })
})
