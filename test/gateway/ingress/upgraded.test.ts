import { describe, expect, it } from 'vitest'
import { turns } from '../../helpers/frame-peer.ts'
import { startHandSite } from './hand-device.ts'

const GET = 'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'

describe('an upgraded connection', () => {
  const SWITCHING = 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'

  async function upgraded(greeting = '') {
    const parts = await startHandSite()
    const client = await parts.visit(GET)
    parts.device.last.send(SWITCHING + greeting)
    const begun = await parts.read(client)
    expect(begun.endsWith(`\r\n\r\n${greeting}`)).toBe(true)
    return { ...parts, client, begun }
  }

  it('passes each end on by itself', async () => {
    const { device, site, free, client, begun, read } = await upgraded('hello')
    client.send('last')
    client.finish()
    await turns()
    expect(device.last.text).toMatch(/last$/)
    expect(device.last.isEnded).toBe(true)
    expect(await read(client)).toBe(begun)
    expect(client.ending).toBe('end')
    await site.advance(5_000)
    expect(site.connections.size).toBe(0)
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic.active).toBe(0)
  })

  it('waits for a client that does not read, and goes on with it', async () => {
    const { device, site, client, begun, read } = await upgraded()
    const total = 1_000_000
    for (let at = 0; at < total; at += 50_000) device.last.send('x'.repeat(50_000))
    await turns(50)
    expect(site.endpoint.traffic.bytesOut).toBeLessThan(700_000)
    expect(await read(client)).toHaveLength(begun.length + total)
  })

  it('ends at once when the gateway stops', async () => {
    const { site, client, read } = await upgraded()
    for (const connection of site.connections) connection.stop()
    await read(client)
    expect(client.ending).toBe('reset')
  })

  it('ends after an hour of silence', async () => {
    const { site, free, client, read } = await upgraded()
    await site.advance(3_590_000)
    client.send('x')
    await turns()
    await site.advance(3_590_000)
    await read(client)
    expect(client.ending).toBeUndefined()
    await site.advance(20_000)
    await read(client)
    expect(client.ending).toBe('reset')
    expect(site.session.freeSlots).toBe(free)
    // Nobody is to blame.
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 0 })
  })

  it('makes a client wait whose device takes no more', async () => {
    const { device, client } = await upgraded()
    device.isDeaf = true
    for (let at = 0; at < 20; at += 1) client.send('x'.repeat(50_000))
    await turns(50)
    expect(client.bytesRead).toBeLessThan(700_000)
    device.isDeaf = false
    device.last.listen()
    await turns(50)
    expect(device.last.text.endsWith('x'.repeat(1_000_000))).toBe(true)
  })

  it('may greet with what is no HTTP', async () => {
    const { device, client, begun, read } = await upgraded('\n\x00 hello')
    client.send('hi')
    await turns()
    expect(device.last.text).toMatch(/hi$/)
    expect(device.last.isEnded).toBe(false)
    device.last.send('there')
    expect(await read(client)).toBe(`${begun}there`)
  })

  it('has a pace as well', async () => {
    const { site, client } = await upgraded()
    await site.advance(1_000)
    client.send('x'.repeat(5_000))
    await turns()
    await site.advance(10_000)
    const [stream] = site.endpoint.streams.busy
    expect(stream?.user?.pace.rate).toBe(500)
  })
})
