import { describe, expect, it } from 'vitest'
import { startManagementApi } from '../../../helpers/management-client.ts'
import { startReceiver } from '../../../helpers/webhook-receiver.ts'

const URL_OF = { url: 'https://hooks.example.com/fleet' }

async function startWithEvents() {
  const api = await startManagementApi({ mayDial: () => true })
  const { clock, database, events } = api
  clock.stepWall(Date.now() - clock.now())
  const happen = (ownerId: string | null = null) =>
    database.write(() =>
      events.append({ at: clock.now(), type: 'device.online', ownerId, details: { n: 1 } }),
    )
  return { ...api, happen }
}

describe('webhook endpoints', () => {
  it('show their secret once', async () => {
    const { call, baseUrl } = await startWithEvents()
    const { status, body } = await call('POST', '/webhook_endpoints', {
      body: { ...URL_OF, event_types: ['device.offline', 'device.offline'] },
    })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.stringMatching(/^wh_[0-9A-Za-z]{27}$/),
      uri: `${baseUrl}/webhook_endpoints/${body.id}`,
      created_at: expect.any(String),
      ...URL_OF,
      description: '',
      event_types: ['device.offline'],
      owner_id: null,
      active: true,
      secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
      overlap_ends_at: null,
      behind: 0,
      missed: 0,
      last_delivered_at: null,
      failures: 0,
      problem: null,
      next_try_at: null,
    })
    const listed = (await call('GET', '/webhook_endpoints')).body.webhook_endpoints
    expect(listed).toEqual([{ ...body, secret: null }])
    const { entries } = (await call('GET', '/audit')).body
    expect(JSON.stringify(entries)).not.toContain(body.secret)
    expect(entries[0]).toMatchObject({ action: 'webhook_endpoint.create', target: { id: body.id } })
  })

  it('refuse what is no address, and unknown types', async () => {
    const { call } = await startWithEvents()
    const refused = async (body: object) =>
      (await call('POST', '/webhook_endpoints', { body })).body.error_code
    for (const url of [
      'ftp://a.test',
      'a.test',
      'https://user:pass@a.test',
      'https://a.test/#x',
      'http://169.254.169.254/',
    ]) {
      expect(await refused({ url }), url).toBe('ERR_NGROK_834')
    }
    expect(await refused({ ...URL_OF, event_types: ['device.exploded'] })).toBe('ERR_NGROK_215')
    expect(await refused({ ...URL_OF, owner_id: 'bot_x' })).toBe('ERR_NGROK_634')
  })

  it('are tried out, changed, switched off and deleted', async () => {
    const { call } = await startWithEvents()
    const receiver = await startReceiver((count) => (count === 0 ? 200 : 500))
    const body = { url: receiver.url }
    const made = (await call('POST', '/webhook_endpoints', { body })).body
    receiver.secret.current = made.secret
    const path = `/webhook_endpoints/${made.id}`
    const test = () => call('POST', `${path}/test`)
    expect((await test()).body).toEqual({ ok: true, status: 200, text: 'Delivered.' })
    expect(receiver.received).toMatchObject([{ type: 'webhook.test', sequence: null }])
    expect((await test()).body).toEqual({
      ok: false,
      status: 500,
      text: 'The receiver answered with 500.',
    })
    const changed = await call('PATCH', path, {
      body: { active: false, description: 'pager', event_types: ['device.offline'] },
    })
    expect(changed.body).toMatchObject({ active: false, description: 'pager', url: receiver.url })
    expect((await call('PATCH', path, { body: { url: 'x' } })).body.error_code).toBe(
      'ERR_NGROK_834',
    )
    expect((await call('DELETE', path)).status).toBe(204)
    expect((await call('GET', path)).status).toBe(404)
  })

  it('get a new secret, with the old one beside it for a while', async () => {
    const { call, clock } = await startWithEvents()
    const { body: made } = await call('POST', '/webhook_endpoints', { body: URL_OF })
    const rotate = (body: object) => call('POST', `/webhook_endpoints/${made.id}/rotate`, { body })
    const first = await rotate({})
    expect([first.status, first.body.secret === made.secret]).toEqual([200, false])
    const inADay = new Date(clock.now() + 86_400_000).toISOString().slice(0, 19)
    expect(first.body.overlap_ends_at).toBe(`${inADay}Z`)
    const shown = async () => (await call('GET', `/webhook_endpoints/${made.id}`)).body
    expect(await shown()).toEqual({ ...first.body, secret: null })
    const { entries } = (await call('GET', '/audit')).body
    expect(entries[0]).toMatchObject({ action: 'webhook_endpoint.rotate' })
    expect(JSON.stringify(entries)).not.toContain(first.body.secret)
    // Known to others: no secret from before signs any more.
    expect((await rotate({ overlap_s: 0 })).body.overlap_ends_at).toBeNull()
    for (const overlap_s of [-1, 2_592_001, 'long']) {
      expect((await rotate({ overlap_s })).body.error_code).toBe('ERR_NGROK_215')
    }
  })

  it('send again what happened since a time or an event', async () => {
    const { call, happen, clock } = await startWithEvents()
    const receiver = await startReceiver()
    const made = (await call('POST', '/webhook_endpoints', { body: { url: receiver.url } })).body
    receiver.secret.current = made.secret
    happen()
    await clock.advance(10_000)
    const since = new Date(clock.now()).toISOString()
    happen()
    happen()
    await receiver.took(3)
    const replay = (body: object) => call('POST', `/webhook_endpoints/${made.id}/replay`, { body })
    expect((await replay({ since })).status).toBe(204)
    await receiver.took(5)
    const { events } = (await call('GET', '/events')).body
    expect(events).toMatchObject([{ sequence: 3 }, { sequence: 2 }, { sequence: 1 }])
    expect((await replay({ after_id: events[1].id })).status).toBe(204)
    await receiver.took(6)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 2, 3, 3])
    for (const bad of [
      {},
      { since, after_id: events[0].id },
      { since: 'soon' },
      { since: '' },
      { after_id: 'x' },
    ]) {
      expect((await replay(bad)).body.error_code, JSON.stringify(bad)).toBe('ERR_NGROK_215')
    }
  })

  it('of an owner get what is its own, and are its own', async () => {
    const { call, issuer, happen } = await startWithEvents()
    const { id: a } = await issuer.createBotUser({ name: 'a' })
    const { id: b } = await issuer.createBotUser({ name: 'b' })
    const key = (await issuer.createApiKey({ ownerId: a })).token
    const made = await call('POST', '/webhook_endpoints', { key, body: URL_OF })
    expect(made.body.owner_id).toBe(a)
    const other = await call('POST', '/webhook_endpoints', {
      key,
      body: { ...URL_OF, owner_id: b },
    })
    expect(other.status).toBe(403)
    await call('POST', '/webhook_endpoints', { body: URL_OF })
    expect((await call('GET', '/webhook_endpoints', { key })).body.webhook_endpoints).toHaveLength(
      1,
    )
    happen(a)
    happen(b)
    happen()
    const { events } = (await call('GET', '/events', { key })).body
    expect(events.map(({ sequence }: { sequence: number }) => sequence)).toEqual([1])
    expect(
      (await call('GET', '/events?filter=obj.type%20%3D%3D%20%22device.online%22')).body.events,
    ).toHaveLength(3)
  })
})
