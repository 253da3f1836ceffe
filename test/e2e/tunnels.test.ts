import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Device, type TunnelBody } from '../helpers/device.ts'
import { type EchoUpstream, startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HOST = 'device123.site.localhost'
const OWN_POLICY = {
  on_http_response: [
    { actions: [{ type: 'add-headers', config: { headers: { 'x-own': 'yes' } } }] },
  ],
}

describe('a device and its tunnels, through the real SDK', () => {
  let upstream: EchoUpstream
  let folder: string
  let device: Device

  beforeEach(async () => {
    upstream = await startEchoUpstream()
    folder = temporaryFolder()
    device = await Device.start(folder)
  })

  afterEach(async () => {
    if (device.program.child.exitCode === null) await device.program.end('SIGKILL')
    await upstream.close()
  })

  it('creates through the public domain, serves over HTTP and HTTPS, lists and deletes', async () => {
    expect(await device.list()).toEqual([])
    const created = await device.create(HOST, upstream.port)
    const { port } = new URL(device.up.ingress_https)
    const body = {
      url: `https://${HOST}:${port}`,
      protocol: 'http',
      forwards_to: `localhost:${upstream.port}`,
      domain: HOST,
      policy: null,
    }
    expect([created.status, JSON.parse(created.text)]).toEqual([200, body])

    for (const answer of [
      await device.visit(HOST, '/a?b=c'),
      await device.visitTls(HOST, '/a?b=c'),
    ]) {
      expect(answer.status).toBe(200)
      expect(JSON.parse(answer.text)).toMatchObject({ method: 'GET', url: '/a?b=c' })
    }
    const [listed] = JSON.parse((await device.publicApi('GET', '/tunnels')).text) as TunnelBody[]
    expect({ ...listed, policy: null }).toEqual(body)
    expect(JSON.parse(String(listed?.policy))).toHaveProperty('on_http_request')

    const deleted = await device.publicApi('DELETE', `/tunnels/${HOST}`)
    expect([deleted.status, deleted.text]).toEqual([204, ''])
    const gone = await device.visit(HOST)
    expect([gone.status, gone.headers['ngrok-error-code']]).toEqual([404, 'ERR_NGROK_3200'])
    expect(await device.list()).toEqual([])
  })

  it.each(['SIGTERM', 'SIGKILL'] as const)('brings every tunnel back after %s', async (signal) => {
    await device.create(HOST, upstream.port)
    await device.create('other.site.localhost', upstream.port, OWN_POLICY)
    const before = await device.list()
    const ended = await device.program.end(signal)
    expect(ended.code).toBe(signal === 'SIGTERM' ? 0 : null)

    // The same ports, as on a device: otherwise the port in the URL would differ.
    device = await Device.start(folder, portsOf(device))
    expect(await device.list()).toEqual(before)
    await eventually(async () => {
      expect((await device.visit(HOST)).status).toBe(200)
      expect((await device.visit('other.site.localhost')).headers['x-own']).toBe('yes')
    })
  })

  it('attaches the default policy to tunnels without one and only to these', async () => {
    await device.create(HOST, upstream.port)
    await device.create('other.site.localhost', upstream.port, OWN_POLICY)
    const [first, second] = await device.list()
    expect(JSON.stringify(JSON.parse(String(second?.policy)))).toBe(JSON.stringify(OWN_POLICY))
    expect(String(first?.policy)).toContain('rate-limit')
    const plain = await device.visit(HOST)
    const own = await device.visit('other.site.localhost')
    expect([plain.headers['x-own'], own.headers['x-own']]).toEqual([undefined, 'yes'])
  })

  it('leads no tunnel to the agent or the gateway themselves', async () => {
    const { up } = device
    for (const url of [up.agent_api, up.ingress_http, up.ingress_https, up.management_api]) {
      const answer = await device.create(HOST, Number(new URL(url).port))
      expect([answer.status, JSON.parse(answer.text).code]).toEqual([
        422,
        'forwards-to-not-allowed',
      ])
    }
  })

  it('refuses a second agent on the same folder', async () => {
    const second = Device.start(folder)
    await expect(second).rejects.toThrow(/ended with 1 .*another/is)
  })

  it('keeps secrets out of its logs', async () => {
    await device.create(HOST, upstream.port)
    const { stderr } = await device.program.end()
    expect(stderr).not.toContain(device.up.authtoken)
    expect(stderr).not.toContain(device.up.api_token)
    expect(stderr.length).toBeGreaterThan(0)
  })
})

function portsOf(device: Device): Record<string, string> {
  return {
    GATEWAY_HTTP_LISTEN: new URL(device.up.ingress_http).host,
    GATEWAY_HTTPS_LISTEN: new URL(device.up.ingress_https).host,
  }
}

describe('a site with a domain that no DNS server knows', () => {
  it('is ready all the same, because up knows where its ingress is', async () => {
    const upstream = await startEchoUpstream()
    const device = await Device.start(temporaryFolder(), {
      GATEWAY_RESERVED_DOMAIN: '*.factory.example',
    })
    const created = await device.create('press.factory.example', upstream.port)
    expect([device.up.agent_domain, created.status]).toEqual(['agent.factory.example', 200])
    expect((await device.visitTls('press.factory.example')).status).toBe(200)
    await device.program.end()
    await upstream.close()
  })
})
