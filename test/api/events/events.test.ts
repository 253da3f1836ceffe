import { get, type IncomingMessage } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { API_TOKEN, type StartedApi, startApi } from '../started-api.ts'

interface Told {
  readonly id: number | undefined
  readonly event: string
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was told.
  readonly data: any
}

/** Reads a stream of events as it comes. */
async function listen({ port }: StartedApi, headers: Record<string, string> = {}, query = '') {
  const told: Told[] = []
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const asked = get(
      {
        host: '127.0.0.1',
        port,
        path: `/events${query}`,
        headers: { authorization: `Bearer ${API_TOKEN}`, ...headers },
      },
      resolve,
    )
    asked.on('error', reject)
    onTestFinished(() => void asked.destroy())
  })
  let rest = ''
  let isEnded = false
  response.setEncoding('utf8')
  response.on('data', (chunk: string) => {
    const parts = (rest + chunk).split('\n\n')
    rest = parts.pop() ?? ''
    for (const part of parts) {
      const fields = new Map(
        part.split('\n').map((line) => line.split(/: ?(.*)/s) as [string, string]),
      )
      const event = fields.get('event')
      if (event === undefined) continue
      const id = fields.get('id')
      told.push({
        id: id === undefined ? undefined : Number(id),
        event,
        data: JSON.parse(fields.get('data') ?? 'null'),
      })
    }
  })
  response.on('close', () => {
    isEnded = true
  })
  return { response, told, isEnded: () => isEnded }
}

const TUNNEL = { protocol: 'http', forwards_to: 'localhost:1', domain: 'cam.site.test' }
const named = (told: readonly Told[]) => told.map(({ event }) => event)

describe('/events', () => {
  it('tells of a tunnel from its creation to its end', async () => {
    const api = await startApi()
    const { told, response } = await listen(api)
    expect(response.statusCode).toBe(200)
    expect(response.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
    })
    await api.call('POST', '/tunnels', TUNNEL)
    await eventually(() => expect(named(told)).toContain('tunnel.created'))
    const created = told.find(({ event }) => event === 'tunnel.created')
    expect(created?.data).toMatchObject({
      at: expect.any(String),
      url_part: 'cam.site.test',
      forwards_to: 'localhost:1',
    })
    await api.call('PUT', '/tunnels/cam.site.test', { ...TUNNEL, forwards_to: 'localhost:2' })
    await eventually(() => expect(named(told)).toContain('tunnel.changed'))
    await api.call('DELETE', '/tunnels/cam.site.test')
    await eventually(() => expect(named(told)).toContain('tunnel.deleted'))
    const ids = told.map(({ id }) => id ?? 0)
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b))
  })

  it('tells that the link is lost, and that it is back', async () => {
    const api = await startApi()
    const { told } = await listen(api)
    await api.call('POST', '/tunnels', TUNNEL)
    api.service.connector.last.lose()
    const states = () =>
      told.filter(({ event }) => event === 'link.state').map(({ data }) => data.state)
    await eventually(() => expect(states().at(-1)).toBe('up'))
    expect(states().length).toBeGreaterThan(1)
  })

  it('goes on where a reader was, over a restart of the agent', async () => {
    const folder = temporaryFolder()
    const first = await startApi({ folder })
    const before = await listen(first)
    await first.call('POST', '/tunnels', TUNNEL)
    await eventually(() => expect(named(before.told)).toContain('tunnel.created'))
    const last = before.told.at(-1)?.id ?? 0
    await first.agent.stop()
    first.feed.stop()
    await eventually(() => expect(before.isEnded()).toBe(true))
    first.database.close()
    const second = await startApi({ folder })
    const { told } = await listen(second, { 'last-event-id': String(last) })
    await eventually(() => expect(named(told)).toContain('agent.started'))
    expect(told[0]?.id).toBeGreaterThan(last)
    expect(named(told)).not.toContain('tunnel.created')
    const all = await listen(second, {}, '?last_event_id=0')
    await eventually(() => expect(named(all.told)).toContain('tunnel.created'))
    expect(named(all.told)).not.toContain('events.missed')
  })

  it('begins with what happens next for who says nothing', async () => {
    const api = await startApi()
    await api.call('POST', '/tunnels', TUNNEL)
    await eventually(() => expect(api.feed.countOf('tunnel.created')).toBe(1))
    const { told } = await listen(api)
    await api.call('DELETE', '/tunnels/cam.site.test')
    await eventually(() => expect(named(told)).toContain('tunnel.deleted'))
    expect(named(told)).not.toContain('tunnel.created')
  })

  it('refuses what is no id, and who is one too many', async () => {
    const api = await startApi()
    const bad = await api.call('GET', '/events?last_event_id=x')
    expect([bad.status, bad.json.errors[0].pointer]).toEqual([400, '/last_event_id'])
    const readers = []
    for (let n = 0; n < 32; n += 1) readers.push(await listen(api))
    const { status, headers } = await api.call('GET', '/events')
    expect([status, headers['retry-after']]).toEqual([429, '10'])
    readers[7]?.response.destroy()
    await eventually(() => expect(api.feed.subscribers).toBe(31))
    expect((await listen(api)).response.statusCode).toBe(200)
  })

  it('gives a caller with few readers a place of one with many', async () => {
    const api = await startApi()
    const { json } = await api.call('POST', '/tokens', { name: 'panel', scope: 'read' })
    const greedy: Awaited<ReturnType<typeof listen>>[] = []
    for (let n = 0; n < 32; n += 1) greedy.push(await listen(api))
    const { response } = await listen(api, { authorization: `Bearer ${json.token}` })
    expect(response.statusCode).toBe(200)
    await eventually(() => expect(greedy.map((it) => it.isEnded()).indexOf(true)).toBe(0))
    expect((await api.call('GET', '/events')).status).toBe(429)
    expect(api.feed.subscribers).toBe(32)
  })

  it('answers a HEAD, and is over', async () => {
    const api = await startApi()
    const { status, headers } = await api.call('HEAD', '/events')
    expect([status, headers['content-type']]).toEqual([200, 'text/event-stream'])
    expect(api.feed.subscribers).toBe(0)
  })

  it('lets go of who has gone', async () => {
    const api = await startApi()
    const { response } = await listen(api)
    expect(api.feed.subscribers).toBe(1)
    response.destroy()
    await eventually(() => expect(api.feed.subscribers).toBe(0))
  })
})

describe('/metrics', () => {
  it('has figures for who may read', async () => {
    const { call, agent } = await startApi()
    await call('POST', '/tunnels', TUNNEL)
    const made = await call('POST', '/tokens', { name: 'prometheus', scope: 'read' })
    const headers = { authorization: `Bearer ${made.json.token}` }
    const { status, text, headers: answered } = await call('GET', '/metrics', undefined, headers)
    expect([status, answered['content-type']]).toEqual([
      200,
      'text/plain; version=0.0.4; charset=utf-8',
    ])
    for (const line of [
      'device_agent_link_state{state="up"} 1',
      'device_agent_link_state{state="waiting"} 0',
      `device_agent_tunnels{state="online"} ${agent.status().tunnels.online}`,
      'device_agent_storage_writable 1',
      'device_agent_default_policy_good 1',
    ]) {
      expect(text).toContain(`\n${line}\n`)
    }
    expect(text).toContain('device_agent_tunnel_online{tunnel="cam.site.test"}')
    const open = await call('GET', '/metrics', undefined, { authorization: undefined })
    expect(open.status).toBe(401)
  })
})
