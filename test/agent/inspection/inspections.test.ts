import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Agent } from '../../../src/agent/agent.ts'
import type { Tunnel } from '../../../src/agent/tunnel.ts'
import { type AgentOnFake, agentOnFake } from '../../helpers/agent-on-fake.ts'
import { eventually } from '../../helpers/eventually.ts'
import { sendRequest } from '../../helpers/serve-http.ts'

const MINUTE = 60_000

async function startService(): Promise<number> {
  const server = createServer((request, response) =>
    response.end(`${request.method} ${request.url}`),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close().closeAllConnections())
  return (server.address() as AddressInfo).port
}

async function start(names: readonly string[] = ['cam']) {
  const on = await agentOnFake()
  await on.agent.start()
  await eventually(() => expect(on.agent.status().link.state).toBe('up'))
  const port = await startService()
  for (const name of names) {
    await on.agent.create({
      protocol: 'http',
      domain: `${name}.site.test`,
      forwardsTo: `localhost:${port}`,
      policy: null,
    })
  }
  const direct = `http://localhost:${port}`
  const tunnel = (name = 'cam'): Tunnel => on.agent.find(`${name}.site.test`)
  return { ...on, port, direct, tunnel, dialled: (name = 'cam') => dialledBy(on, name) }
}

/** What the SDK dials for a tunnel. */
function dialledBy({ connector }: AgentOnFake, name: string): string {
  return connector.last.endpoints.get(`${name}.site.test`)?.dialUrl ?? ''
}

/** As a visitor of the tunnel would be led there. */
function visit(dialUrl: string, path = '/') {
  const { hostname, port } = new URL(dialUrl)
  return sendRequest({ port: Number(port) }, { path, headers: { host: hostname } })
}

const numbers = (agent: Agent, { id }: Tunnel) =>
  agent.inspections.list(id).map(({ number }) => number)

describe('Inspections', () => {
  it('are off, and cost no hop', async () => {
    const { agent, tunnel, dialled, direct } = await start()
    expect(dialled()).toBe(direct)
    expect(agent.inspections.status(tunnel().id)).toEqual({ state: 'off', endsAt: undefined })
  })

  it('lead a tunnel through a hop and back, the new way open before the old one closes', async () => {
    const { agent, tunnel, dialled, direct, connector } = await start()
    connector.journal.length = 0
    await agent.inspections.start(tunnel(), MINUTE)
    expect(agent.inspections.status(tunnel().id).state).toBe('on')
    const hop = dialled()
    expect(hop).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
    expect(hop).not.toBe(direct)
    expect((await visit(hop, '/a?b=1')).text).toBe('GET /a?b=1')
    expect(agent.inspections.list(tunnel().id)).toMatchObject([
      { number: 1, state: 'answered', request: { target: '/a?b=1' }, response: { status: 200 } },
    ])
    await agent.inspections.stop(tunnel().id)
    expect(dialled()).toBe(direct)
    expect(connector.journal).toEqual([
      'open cam.site.test',
      'close cam.site.test',
      'open cam.site.test',
      'close cam.site.test',
    ])
    expect(agent.inspections.status(tunnel().id).state).toBe('off')
    expect(agent.inspections.list(tunnel().id)).toEqual([])
    await expect(visit(hop)).rejects.toThrow('ECONNREFUSED')
  })

  it('end by themselves, and what was seen can be read', async () => {
    const { agent, tunnel, dialled, direct } = await start()
    await agent.inspections.start(tunnel(), MINUTE)
    await visit(dialled())
    await agent.inspections.start(tunnel(), 1)
    await eventually(() => expect(dialled()).toBe(direct))
    await eventually(() => expect(agent.inspections.status(tunnel().id).state).toBe('off'))
    expect(numbers(agent, tunnel())).toEqual([1])
  })

  it('go on when they are started again', async () => {
    const { agent, tunnel, dialled } = await start()
    await agent.inspections.start(tunnel(), MINUTE)
    const { endsAt = 0 } = agent.inspections.status(tunnel().id)
    const hop = dialled()
    await visit(hop)
    await agent.inspections.start(tunnel(), 10 * MINUTE)
    expect(dialled()).toBe(hop)
    expect(agent.inspections.status(tunnel().id).endsAt).toBeGreaterThan(endsAt + 5 * MINUTE)
    expect(numbers(agent, tunnel())).toEqual([1])
  })

  it('leave the hop open until visitors have another way', async () => {
    const { agent, tunnel, dialled, connector, direct } = await start()
    await agent.inspections.start(tunnel(), MINUTE)
    const hop = dialled()
    let isRefused = true
    connector.onOpen = () => {
      if (isRefused) throw new Error('not now')
    }
    await agent.inspections.stop(tunnel().id)
    expect(dialled()).toBe(hop)
    expect(agent.inspections.status(tunnel().id).state).toBe('ending')
    expect((await visit(hop)).status).toBe(200)
    expect(agent.inspections.list(tunnel().id)).toEqual([])
    isRefused = false
    await eventually(() => expect(dialled()).toBe(direct))
    await eventually(() => expect(visit(hop)).rejects.toThrow('ECONNREFUSED'))
  })

  it('follow a tunnel to another service, with one hop at a time', async () => {
    const { agent, tunnel, dialled } = await start()
    await agent.inspections.start(tunnel(), MINUTE)
    const hops: string[] = []
    for (let n = 0; n < 3; n += 1) {
      const port = await startService()
      const spec = { ...tunnel().spec, forwardsTo: `localhost:${port}` }
      await agent.replace('cam.site.test', spec)
      hops.push(dialled())
      expect((await visit(dialled(), `/${n}`)).text).toBe(`GET /${n}`)
    }
    expect(new Set(hops).size).toBe(3)
    for (const hop of hops.slice(0, 2)) await expect(visit(hop)).rejects.toThrow('ECONNREFUSED')
    expect(agent.inspections.status(tunnel().id).state).toBe('on')
    expect(numbers(agent, tunnel())).toEqual([1, 2, 3])
  })

  it('leave tunnels alone whose services speak HTTP/2', async () => {
    const { agent, tunnel, dialled, port, direct } = await start()
    const spec = { ...tunnel().spec, forwardsTo: `localhost:${port}`, upstream: { http2: true } }
    await agent.replace('cam.site.test', spec)
    await expect(agent.inspections.start(tunnel(), MINUTE)).rejects.toMatchObject({
      code: 'not-inspectable',
    })
    expect([dialled(), agent.inspections.status(tunnel().id).state]).toEqual([direct, 'off'])
  })

  it('leave tunnels alone whose services get a PROXY header', async () => {
    const { agent, tunnel, dialled, direct } = await start()
    const spec = { ...tunnel().spec, upstream: { proxy_protocol: 1 as const } }
    await agent.replace('cam.site.test', spec)
    await expect(agent.inspections.start(tunnel(), MINUTE)).rejects.toMatchObject({
      code: 'not-inspectable',
    })
    expect([dialled(), agent.inspections.status(tunnel().id).state]).toEqual([direct, 'off'])
  })

  it('are off after a restart', async () => {
    const on = await start()
    await on.agent.inspections.start(on.tunnel(), MINUTE)
    await on.agent.stop()
    const again = on.again()
    await again.start()
    await eventually(() => expect(dialledBy(on, 'cam')).toBe(on.direct))
    expect(again.inspections.status(on.tunnel().id).state).toBe('off')
  })

  it('go with their tunnel', async () => {
    const { agent, tunnel, dialled } = await start()
    await agent.inspections.start(tunnel(), MINUTE)
    const hop = dialled()
    const { id } = tunnel()
    await agent.remove(id)
    expect(agent.inspections.status(id).state).toBe('off')
    await expect(visit(hop)).rejects.toThrow('ECONNREFUSED')
  })

  it('keep what was seen of four at most', async () => {
    const names = ['a', 'b', 'c', 'd', 'e']
    const { agent, tunnel, dialled } = await start(names)
    const { inspections } = agent
    for (const name of names) {
      await inspections.start(tunnel(name), MINUTE)
      await visit(dialled(name))
      await inspections.start(tunnel(name), 1)
      await eventually(() => expect(inspections.status(tunnel(name).id).state).toBe('off'))
    }
    expect(names.map((name) => numbers(agent, tunnel(name)))).toEqual([[], [1], [1], [1], [1]])
  })

  it('are four at most, and of web tunnels', async () => {
    const names = ['a', 'b', 'c', 'd', 'e']
    const { agent, tunnel } = await start(names)
    for (const name of names.slice(0, 4)) await agent.inspections.start(tunnel(name), MINUTE)
    await expect(agent.inspections.start(tunnel('e'), MINUTE)).rejects.toMatchObject({
      code: 'too-many-inspections',
    })
    await agent.inspections.stop(tunnel('a').id)
    await agent.inspections.start(tunnel('e'), MINUTE)
    const tcp = { id: tunnel('a').id, spec: { protocol: 'tcp' } }
    await expect(agent.inspections.start(tcp, MINUTE)).rejects.toMatchObject({
      code: 'not-inspectable',
    })
  })
})
