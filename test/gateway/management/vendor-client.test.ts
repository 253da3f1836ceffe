import { Ngrok } from '@ngrok/ngrok-api'
import { describe, expect, it } from 'vitest'
import { startManagementApi } from '../../helpers/management-client.ts'

/** The client cannot read an answer without a body, and takes its own failure for the service's. */
const done = (promise: Promise<unknown>) =>
  promise.catch((error: Error) => {
    if (!(error instanceof SyntaxError)) throw error
  })

async function connect() {
  const { key, baseUrl, ...rest } = await startManagementApi()
  return { ...rest, client: new Ngrok({ apiToken: key.reveal(), baseUrl }) }
}

describe("the vendor's own API client", () => {
  it('creates, gets, lists, updates and deletes each resource', async () => {
    const { client } = await connect()
    const policy = await client.ipPolicies.create({ description: 'office' })
    const cases = [
      {
        service: client.reservedDomains,
        create: () => client.reservedDomains.create({ domain: '*.site.test' } as never),
        change: { description: 'site a' },
      },
      {
        service: client.botUsers,
        create: () => client.botUsers.create({ name: 'site a' }),
        change: { active: false },
      },
      {
        service: client.credentials,
        create: () => client.credentials.create({ acl: ['bind:*.site.test'] }),
        change: { acl: ['bind:a.site.test'] },
      },
      {
        service: client.apiKeys,
        create: () => client.apiKeys.create({ description: 'ci' }),
        change: { metadata: 'm' },
      },
      {
        service: client.ipPolicies,
        create: () => client.ipPolicies.create({ metadata: 'm' }),
        change: { description: 'home' },
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
      },
    ]
    for (const { service, create, change } of cases) {
      const { id } = await create()
      const idsOf = async () => (await service.list()).map((item) => item.id)
      expect(await idsOf()).toContain(id)
      expect(await service.update({ id, ...change } as never)).toMatchObject(change)
      expect(await service.get(id)).toMatchObject({ id, ...change })
      await done(service.delete(id))
      expect(await idsOf()).not.toContain(id)
    }
  })

  it('walks through all pages', async () => {
    const { client, issuer } = await connect()
    const ids = Array.from({ length: 5 }, () => issuer.createCredential({}).credential.id)
    const listed = await client.credentials.list(undefined, '2')
    expect(listed.map(({ id }) => id)).toEqual(ids.toReversed())
  })

  it('hears the code of a refusal', async () => {
    const { client } = await connect()
    await expect(client.credentials.create({ acl: ['nonsense'] })).rejects.toMatchObject({
      errorCode: 'ERR_NGROK_600',
      statusCode: 400,
    })
  })
})
