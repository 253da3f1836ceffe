import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { describe, expect, it, onTestFinished } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { Site } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const FRONT = 'front.site.localhost'

const rule = (action: object, ...expressions: string[]) => ({ expressions, actions: [action] })
const answer = (body: string) => ({ type: 'custom-response', config: { body } })
const forwardTo = (name: string) =>
  rule(
    { type: 'forward-internal', config: { url: `https://${name}.internal` } },
    `req.url.path.startsWith('/${name}')`,
  )
/** Two devices behind one address, and a word for everybody else. */
const POLICY = JSON.stringify({
  on_http_request: [forwardTo('cam'), forwardTo('door'), rule(answer('this is the hall'))],
})

/** A gateway, and an agent with two devices' services that only policies reach. */
async function startSite() {
  // Nobody waits here for a device that is gone.
  const site = await Site.start(temporaryFolder(), { GATEWAY_HOLD_SECONDS: '0' })
  onTestFinished(() => site.stop())
  const listed = await site.manage('GET', '/credentials')
  const { credentials } = (await listed.json()) as { credentials: { id: string; acl: string[] }[] }
  const [credential] = credentials
  const acl = [...(credential?.acl ?? []), 'share:*.internal']
  await site.manage('PATCH', `/credentials/${credential?.id}`, { acl })
  for (const name of ['cam', 'door']) {
    const upstream = await startEchoUpstream(name)
    onTestFinished(() => upstream.close())
    const sockets = new WebSocketServer({ server: upstream.server })
    sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(data)))
    expect((await site.create(`${name}.internal`, upstream.port)).status).toBeLessThan(300)
  }
  await site.online(2)
  return site
}

async function makeFront(site: Site, change: object = {}) {
  const request = { url: `https://${FRONT}`, type: 'cloud', traffic_policy: POLICY, ...change }
  const made = await site.manage('POST', '/endpoints', request)
  expect(made.status).toBe(201)
  return (await made.json()) as { id: string; url: string }
}

/** What a visitor of the front gets: the name of the device, or the text or code of the answer. */
async function visit(site: Site, path: string): Promise<string> {
  const { text, headers } = await site.visit(FRONT, path)
  if (headers['content-type'] === 'application/json') return JSON.parse(text).name
  return String(headers['ngrok-error-code'] ?? text)
}

describe('a cloud endpoint in front of devices', () => {
  it('leads to each of them, and is there without any', async () => {
    const site = await startSite()
    const { id } = await makeFront(site)
    expect(await visit(site, '/cam/picture')).toBe('cam')
    expect(await visit(site, '/door')).toBe('door')
    expect(await visit(site, '/')).toBe('this is the hall')
    const secure = await publicRequest({
      ingress: site.ready.ingress_https,
      host: FRONT,
      path: '/cam',
      ca: readFileSync(site.ready.ca_cert, 'utf8'),
    })
    expect(JSON.parse(secure.text).headers.host).toContain(FRONT)

    const { port } = new URL(site.ready.ingress_http)
    const socket = new WebSocket(`ws://127.0.0.1:${port}/door`, { headers: { host: FRONT } })
    await once(socket, 'open')
    socket.send('ring')
    expect(String((await once(socket, 'message'))[0])).toBe('ring')
    socket.close()

    const taken = await site.create(FRONT, 1)
    expect([taken.status, await taken.json()]).toMatchObject([
      409,
      { code: 'domain-online-elsewhere', service_code: 'ERR_NGROK_334' },
    ])
    await site.agent.end()
    await eventually(async () => expect(await visit(site, '/cam')).toBe('ERR_GATEWAY_AWAY'))
    expect(await visit(site, '/')).toBe('this is the hall')

    const { traffic } = (await (await site.manage('GET', `/endpoints/${id}`)).json()) as {
      traffic: { requests: number; refused: number }
    }
    expect(traffic.requests).toBeGreaterThanOrEqual(7)
    expect(traffic.refused).toBeGreaterThanOrEqual(1)
  })

  it('changes with the next request, and goes with it', async () => {
    const site = await startSite()
    const { id } = await makeFront(site)
    const path = `/endpoints/${id}`
    const policy = JSON.stringify({ on_http_request: [rule(answer('closed today'))] })
    const changed = await site.manage('PATCH', path, { traffic_policy: policy })
    expect(changed.status).toBe(200)
    expect(await visit(site, '/cam')).toBe('closed today')
    expect((await site.manage('DELETE', path)).status).toBe(204)
    expect(await visit(site, '/cam')).toBe('ERR_NGROK_3200')
  })

  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'is back before the first visitor after %s',
    async (signal) => {
      const site = await startSite()
      const made = await makeFront(site, { description: 'front door' })
      await site.gateway.end(signal)
      await site.startGateway()
      expect(await visit(site, '/')).toBe('this is the hall')
      const { endpoints } = (await (await site.manage('GET', '/endpoints')).json()) as {
        endpoints: { type: string }[]
      }
      const cloud = endpoints.filter(({ type }) => type === 'cloud')
      expect(cloud).toMatchObject([{ id: made.id, url: made.url, description: 'front door' }])
      await eventually(async () => expect(await visit(site, '/cam')).toBe('cam'))
    },
  )
})
