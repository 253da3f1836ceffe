import { describe, expect, it } from 'vitest'
import { formatListenAddress } from '../../../../src/base/listen-address.ts'
import { Secret } from '../../../../src/base/secret.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { bind, connectSdk, sdkCode, startGateway } from '../../../helpers/running-gateway.ts'

async function startSite() {
  const running = await startGateway({ apiListen: { host: '127.0.0.1', port: 0 } })
  const { gateway, addresses } = running
  if (!addresses.api) throw new Error('the management API is not served')
  const key = await gateway.provisionApiKey({ description: 'walk' })
  const baseUrl = `http://${formatListenAddress(addresses.api)}`
  const call = async (method: string, path: string, body?: object) => {
    const response = await fetch(`${baseUrl}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key.reveal()}`,
        'content-type': 'application/json',
        'svc-version': '2',
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
    return (response.status === 204 ? {} : await response.json()) as any
  }
  return { ...running, call }
}

describe('the walk from a reserved domain to a device and back', () => {
  it('lets a device in, keeps it inside its rules, and takes it off within a second', async () => {
    const site = await startSite()
    const { call } = site
    const domain = await call('POST', '/reserved_domains', { domain: '*.sitea.test' })
    const botUser = await call('POST', '/bot_users', { name: 'device 7' })
    const credential = await call('POST', '/credentials', {
      owner_id: botUser.id,
      acl: ['bind:*.sitea.test'],
    })
    const device = { authtoken: new Secret(String(credential.token)) }
    const session = await connectSdk(site, device)
    await bind(session, 'cam.sitea.test')
    expect(await sdkCode(bind(session, 'cam.siteb.test'))).toBe('ERR_NGROK_316')

    const { endpoints } = await call('GET', '/endpoints')
    expect(endpoints).toMatchObject([{ host: 'cam.sitea.test', domain: { id: domain.id } }])
    const { tunnel_sessions } = await call('GET', '/tunnel_sessions')
    expect(tunnel_sessions).toMatchObject([
      { credential: { id: credential.id }, endpoints: [{ id: endpoints[0].id }] },
    ])
    await eventually(async () => {
      const { certificate_management_status: status } = await call(
        'GET',
        `/reserved_domains/${domain.id}`,
      )
      expect(status).toEqual({ renews_at: expect.any(String), provisioning_job: null })
    })

    await call('DELETE', `/credentials/${credential.id}`)
    expect((await call('GET', '/endpoints')).endpoints).toEqual([])
    expect(await sdkCode(connectSdk(site, device))).toBe('ERR_NGROK_107')
  })

  it('ends the sessions of a bot user that is set inactive', async () => {
    const site = await startSite()
    const { call } = site
    const botUser = await call('POST', '/bot_users', { name: 'device 7' })
    const { token } = await call('POST', '/credentials', {
      owner_id: botUser.id,
      acl: ['bind:*.site.test'],
    })
    const device = { authtoken: new Secret(String(token)) }
    await bind(await connectSdk(site, device), 'cam.site.test')
    await call('PATCH', `/bot_users/${botUser.id}`, { active: false })
    expect((await call('GET', '/tunnel_sessions')).tunnel_sessions).toEqual([])
    expect(await sdkCode(connectSdk(site, device))).toBe('ERR_NGROK_636')
  })
})
