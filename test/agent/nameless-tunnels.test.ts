import { rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { TunnelSpec } from '../../src/agent/tunnel.ts'
import { linkUp } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import {
  type AgentOnGateway,
  agentOnGateway,
  isDown,
  startedOnGateway,
} from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { gate, refusal } from '../helpers/fake-connector.ts'
import { managed } from '../helpers/managed-gateway.ts'
import { readAll } from '../helpers/tcp-site.ts'
import { startTlsService, visitTls } from '../helpers/tls-site.ts'

const NAME = /^[a-z]+-[a-z]+-[a-z2-9]{7}\.site\.test$/

const nameless = (port: number, change: Partial<TunnelSpec> = {}): TunnelSpec => ({
  protocol: 'http',
  forwardsTo: `localhost:${port}`,
  domain: '',
  policy: null,
  ...change,
})

async function startHello(): Promise<number> {
  const server = createServer((_request, response) => response.end('hello'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close().closeAllConnections())
  return (server.address() as AddressInfo).port
}

const visit = (on: AgentOnGateway, domain: string) => on.visit(domain.split('.')[0] ?? '')

describe('a tunnel without a domain', () => {
  it('gets a name that stays its own over restarts of agent and gateway', async () => {
    const on = await startedOnGateway()
    const port = await startHello()
    const { tunnel, pending } = await on.agent.create(nameless(port))
    const { domain } = tunnel.spec
    expect(domain).toMatch(NAME)
    const url = `https://${domain}:${on.addresses.https.port}`
    expect([pending, tunnel.url]).toEqual([false, url])
    expect(await visit(on, domain)).toBe('hello')
    const second = await on.agent.create(nameless(port))
    expect(second.tunnel.spec.domain).toMatch(NAME)
    expect(second.tunnel.spec.domain).not.toBe(domain)
    await on.agent.stop()
    const next = on.another()
    await next.start()
    await linkUp(next)
    await eventually(() => expect(next.find(tunnel.id).status.state).toBe('online'))
    expect(next.find(tunnel.id)).toMatchObject({ url, spec: { domain } })
    expect(await visit(on, domain)).toBe('hello')
    // Also when the gateway has forgotten the name.
    rmSync(join(on.dataDir, 'names.json'), { force: true })
    await on.restartGateway()
    await eventually(async () => expect(await visit(on, domain)).toBe('hello'))
    expect(next.find(tunnel.id)).toMatchObject({ url, spec: { domain } })
  })

  it('gets a name for tls too', async () => {
    const on = await startedOnGateway()
    const { port, caPem } = await startTlsService((socket) => socket.pipe(socket))
    const { tunnel } = await on.agent.create(nameless(port, { protocol: 'tls' }))
    const { domain } = tunnel.spec
    expect(domain).toMatch(NAME)
    expect(tunnel.url).toBe(`tls://${domain}:${on.addresses.https.port}`)
    const visitor = visitTls(on, domain, { ca: caPem })
    visitor.end('hello')
    expect(await readAll(visitor)).toBe('hello')
  })

  it('is created while the link is down, and has its name when that is back', async () => {
    const on = await agentOnGateway()
    const port = await startHello()
    on.proxy.refuse()
    await on.agent.start()
    const { tunnel, pending } = await on.agent.create(nameless(port))
    expect([pending, tunnel.url, tunnel.spec.domain]).toEqual([true, '', ''])
    await on.agent.create(nameless(port))
    on.proxy.heal()
    await linkUp(on.agent)
    await eventually(() => {
      for (const { spec, status } of on.agent.list()) {
        expect([status.state, spec.domain]).toEqual(['online', expect.stringMatching(NAME)])
      }
    })
    const { domain } = on.agent.find(tunnel.id).spec
    expect(await visit(on, domain)).toBe('hello')
    on.proxy.cut()
    on.proxy.refuse()
    await isDown(on)
    on.proxy.heal()
    await eventually(async () => expect(await visit(on, domain)).toBe('hello'))
    expect(on.agent.find(tunnel.id).spec.domain).toBe(domain)
  })

  it('is refused with a remedy where the rules of the authtoken allow no such name', async () => {
    const on = await agentOnGateway()
    const { call } = await managed(on)
    const issued = await call('POST', '/credentials', { acl: ['bind:door.site.test'] })
    writeFileSync(on.tokenPath, issued.body.token)
    await on.agent.start()
    await linkUp(on.agent)
    await expect(on.agent.create(nameless(await startHello()))).rejects.toMatchObject({
      code: 'forbidden',
      serviceCode: 'ERR_NGROK_316',
      message: expect.stringMatching(
        /The ACL rules .* do not allow [a-z]+-[a-z]+-\w{7}\.site\.test/,
      ),
    })
    expect(on.agent.list()).toEqual([])
  })

  it('is opened by its name at once, and only the last answer counts', async () => {
    const { agent, connector } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    const { name } = connector
    const { tunnel, pending } = await agent.create(nameless(1))
    expect([pending, tunnel.spec.domain, tunnel.url]).toEqual([false, name, `https://${name}:8443`])
    expect(connector.last.endpoints.get(name)?.domain).toBe(name)
    await agent.remove(tunnel.id)
    connector.onOpen = ({ domain }) => {
      if (domain === name) throw refusal(319)
    }
    await expect(agent.create(nameless(1))).rejects.toMatchObject({ serviceCode: 'ERR_NGROK_319' })
    expect([agent.list(), connector.online]).toEqual([[], []])
    // A whole set is stored as a whole: its tunnel stays, and shows the refusal.
    const [outcome] = await agent.replaceAll([nameless(1)])
    expect(outcome?.isInForce).toBe(false)
    expect(agent.list()).toMatchObject([{ spec: { domain: name }, status: { reason: 'acl' } }])
  })

  it('is changed by one at a time, also by the name that it has just been given', async () => {
    const { agent, connector } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    const opening = gate()
    connector.onOpen = opening.wait
    const created = agent.create(nameless(1))
    await eventually(() => expect(agent.list()).toHaveLength(1))
    const planned = agent.replaceAll([], { isDryRun: true })
    const { name } = connector
    const replaced = agent.replace(name, nameless(2, { domain: name }))
    opening.open()
    const { tunnel } = await created
    expect(tunnel.spec.domain).toBe(name)
    await planned
    expect((await replaced).tunnel).toMatchObject({ id: tunnel.id, spec: { domain: name } })
    expect(connector.last.endpoints.get(name)?.dialUrl).toBe('http://localhost:2')
  })
})
