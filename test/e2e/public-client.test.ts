import { Ngrok } from '@ngrok/ngrok-api'
import { describe, expect, it } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram, startRun } from '../helpers/gateway-program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const UNKNOWN = '000000000000000000000000000'

async function connect() {
  const folder = temporaryFolder()
  const gateway = await GatewayProgram.start(folder)
  const { management_api: baseUrl } = gateway.ready
  return { folder, gateway, client: new Ngrok({ apiToken: gateway.apiKey, baseUrl }) }
}

/** The client cannot read an answer without a body, and takes its own failure for the service's. */
const done = (promise: Promise<unknown>) =>
  promise.catch((error: Error) => {
    if (!(error instanceof SyntaxError)) throw error
  })

describe("the vendor's API client, pointed at the gateway", () => {
  it('creates, lists, gets, updates and deletes each resource', async () => {
    const { client } = await connect()
    const policy = await client.ipPolicies.create({ description: 'office' })
    const botUser = await client.botUsers.create({ name: 'fleet' })
    const cases = [
      {
        service: client.reservedDomains,
        // Its types know the first name of the field alone.
        create: () => client.reservedDomains.create({ name: '*.client.test' } as never),
        change: { description: 'site a', metadata: '{"a":1}' },
        created: { domain: '*.client.test' },
      },
      {
        service: client.botUsers,
        create: () => client.botUsers.create({ name: 'site a', active: true }),
        change: { name: 'site b', active: false },
        created: { name: 'site a', active: true },
      },
      {
        service: client.credentials,
        create: () =>
          client.credentials.create({ acl: ['bind:*.client.test'], ownerId: botUser.id }),
        change: { acl: ['bind:a.client.test'], description: 'narrower' },
        created: { acl: ['bind:*.client.test'], token: expect.stringMatching(/^\w{27}_\w+$/) },
      },
      {
        service: client.apiKeys,
        create: () => client.apiKeys.create({ description: 'ci' }),
        change: { metadata: 'm' },
        created: { description: 'ci', token: expect.stringMatching(/^\w{27}_\w+$/) },
      },
      {
        service: client.ipPolicies,
        create: () => client.ipPolicies.create({ metadata: 'm' }),
        change: { description: 'home' },
        created: { metadata: 'm' },
      },
      {
        service: client.ipPolicyRules,
        create: () =>
          client.ipPolicyRules.create({
            cidr: '10.0.0.0/8',
            ipPolicyId: policy.id,
            action: 'deny',
          }),
        change: { cidr: '192.168.0.0/16' },
        created: { cidr: '10.0.0.0/8', action: 'deny' },
      },
    ]
    for (const { service, create, change, created } of cases) {
      const made = await create()
      expect(made).toMatchObject(created)
      const { id } = made
      const idsOf = async () => (await service.list()).map((item) => item.id)
      expect(await idsOf()).toContain(id)
      expect(await service.update({ id, ...change } as never)).toMatchObject(change)
      expect(await service.get(id)).toMatchObject({ id, ...change })
      await done(service.delete(id))
      expect(await idsOf()).not.toContain(id)
      await expect(service.get(id)).rejects.toMatchObject({ statusCode: 404 })
    }
  })

  it('detaches what a domain has for its certificate', async () => {
    const { client } = await connect()
    const { id } = await client.reservedDomains.create({ name: 'a.client.test' } as never)
    await done(client.reservedDomains.deleteCertificateManagementPolicy(id))
    await done(client.reservedDomains.deleteCertificate(id))
    expect(await client.reservedDomains.get(id)).toMatchObject({ id, certificate: null })
  })

  it('lists and gets cloud endpoints, which it does not know how to make', async () => {
    const { client, gateway } = await connect()
    const request = {
      url: 'https://front.site.localhost',
      type: 'cloud',
      traffic_policy: JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] }),
    }
    const { status, body } = await gateway.manage('POST', '/endpoints', request)
    expect(status).toBe(201)
    const shown = { id: body.id, type: 'cloud', proto: 'https', publicUrl: body.public_url }
    expect(await client.endpoints.list()).toMatchObject([shown])
    const path = `/endpoints/${body.id}`
    const changed = await gateway.manage('PATCH', path, { metadata: 'm', description: 'front' })
    expect([changed.status, changed.body.description]).toEqual([200, 'front'])
    expect(await client.endpoints.get(body.id)).toMatchObject({ ...shown, metadata: 'm' })
    expect(await client.tunnels.list()).toEqual([])
    expect((await gateway.manage('DELETE', path)).status).toBe(204)
    expect(await client.endpoints.list()).toEqual([])
    await expect(client.endpoints.get(body.id)).rejects.toMatchObject({ statusCode: 404 })
  })

  it('sees who is online with what, and takes it off', async () => {
    const { client, folder, gateway } = await connect()
    await startRun(folder, {
      SVC_AUTHTOKEN_FILE: gateway.ready.authtoken_file,
      SVC_SERVER_ADDR: gateway.ready.agent_listen,
      SVC_CA_CERT: gateway.ready.ca_cert,
      AGENT_DOMAIN: 'agent.site.localhost',
      AGENT_API_TOKEN: 'token-of-at-least-20-characters',
    })
    const endpoint = await eventually(async () => {
      const [found] = await client.endpoints.list()
      if (!found) throw new Error('no endpoint is online')
      return found
    })
    expect(await client.endpoints.get(endpoint.id)).toMatchObject({
      proto: 'https',
      hostport: expect.stringMatching(/^agent\.site\.localhost:\d+$/),
    })
    const tunnelId = endpoint.id.replace('ep_', 'tn_')
    expect(endpoint.tunnel?.id).toBe(tunnelId)
    const tunnel = { id: tunnelId, proto: 'https', endpoint: { id: endpoint.id } }
    expect(await client.tunnels.list()).toMatchObject([tunnel])
    expect(await client.tunnels.get(tunnelId)).toMatchObject({
      ...tunnel,
      publicUrl: endpoint.publicUrl,
      forwardsTo: expect.any(String),
    })
    const [session] = await client.tunnelSessions.list()
    const id = session?.id ?? ''
    const [credential] = await client.credentials.list()
    expect(await client.tunnelSessions.get(id)).toMatchObject({
      ip: '127.0.0.1',
      credential: { id: credential?.id },
    })
    await done(client.credentials.delete(credential?.id ?? ''))
    expect(await client.endpoints.list()).toEqual([])
    expect(await client.tunnels.list()).toEqual([])
    expect(await client.tunnelSessions.list()).toEqual([])
  })

  it('walks through all pages', async () => {
    const { client } = await connect()
    const before = (await client.credentials.list()).length
    for (let n = 0; n < 5; n += 1) await client.credentials.create({ description: `${n}`, acl: [] })
    const listed = await client.credentials.list(undefined, '2')
    expect(listed).toHaveLength(before + 5)
    expect(listed.slice(0, 5).map(({ description }) => description)).toEqual([
      '4',
      '3',
      '2',
      '1',
      '0',
    ])
  })

  it('hears the code of a refusal', async () => {
    const { client, gateway } = await connect()
    await expect(client.credentials.create({ acl: ['nonsense'] })).rejects.toMatchObject({
      errorCode: 'ERR_NGROK_600',
      statusCode: 400,
    })
    await expect(client.credentials.get(`cr_${UNKNOWN}`)).rejects.toMatchObject({ statusCode: 404 })
    const { management_api: baseUrl } = gateway.ready
    const stranger = new Ngrok({ apiToken: `${UNKNOWN}_0wrong`, baseUrl })
    await expect(stranger.apiKeys.list()).rejects.toMatchObject({ statusCode: 403 })
  })
})
