import { writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { TunnelSpec } from '../../src/agent/tunnel.ts'
import { linkUp } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { agentOnGateway, isDown, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { gate } from '../helpers/fake-connector.ts'
import { somePorts } from '../helpers/some-ports.ts'
import { readAll, startTcpService, visit } from '../helpers/tcp-site.ts'

const echo = (socket: Socket) => socket.pipe(socket)

const tcpSpec = (port: number, change: Partial<TunnelSpec> = {}): TunnelSpec => ({
  protocol: 'tcp',
  forwardsTo: `localhost:${port}`,
  domain: '',
  policy: null,
  ...change,
})

async function answerAt(address: string): Promise<string> {
  const visitor = visit(address)
  visitor.end('hello')
  return readAll(visitor)
}

describe('a tcp tunnel', () => {
  it('gets an address that stays its own over restarts of agent and gateway', async () => {
    const on = await startedOnGateway({ gateway: { tcpListen: somePorts() } })
    const { port } = await startTcpService(echo)
    const { tunnel, pending } = await on.agent.create(tcpSpec(port))
    const { domain } = tunnel.spec
    expect([pending, tunnel.url]).toEqual([false, `tcp://${domain}`])
    expect(await answerAt(domain)).toBe('hello')
    await on.agent.stop()
    const next = on.another()
    await next.start()
    await linkUp(next)
    await eventually(() => expect(next.list()[0]?.status.state).toBe('online'))
    expect(next.list()[0]).toMatchObject({
      id: tunnel.id,
      url: `tcp://${domain}`,
      spec: { domain },
    })
    expect(await answerAt(domain)).toBe('hello')
    await on.restartGateway()
    await eventually(async () => expect(await answerAt(domain)).toBe('hello'))
    expect(next.list()[0]?.url).toBe(`tcp://${domain}`)
  })

  it('is created while the link is down, and has its address when that is back', async () => {
    const on = await agentOnGateway({ gateway: { tcpListen: somePorts() } })
    const { port } = await startTcpService(echo)
    on.proxy.refuse()
    await on.agent.start()
    const { tunnel, pending } = await on.agent.create(tcpSpec(port))
    expect([pending, tunnel.url, tunnel.spec.domain]).toEqual([true, '', ''])
    on.proxy.heal()
    await linkUp(on.agent)
    await eventually(() => expect(on.agent.find(tunnel.id).status.state).toBe('online'))
    const { spec, url } = on.agent.find(tunnel.id)
    expect(url).toBe(`tcp://${spec.domain}`)
    expect(await answerAt(spec.domain)).toBe('hello')
  })

  it('is back at its address after an outage, and who comes meanwhile waits', async () => {
    const on = await startedOnGateway({ gateway: { tcpListen: somePorts() } })
    const { port } = await startTcpService(echo)
    const { tunnel } = await on.agent.create(tcpSpec(port))
    const { domain } = tunnel.spec
    on.proxy.refuse()
    on.proxy.cut()
    await isDown(on)
    const answers = [answerAt(domain), answerAt(domain)]
    on.proxy.heal()
    expect(await Promise.all(answers)).toEqual(['hello', 'hello'])
  })

  it('is refused at an address of another gateway, or of another tunnel', async () => {
    const tcpListen = somePorts()
    const on = await startedOnGateway({ gateway: { tcpListen } })
    const { port } = await startTcpService(echo)
    const domain = `127.0.0.1:${tcpListen.first}`
    await on.agent.create(tcpSpec(port, { domain }))
    expect(await answerAt(domain)).toBe('hello')
    await expect(on.agent.create(tcpSpec(port, { domain }))).rejects.toMatchObject({
      code: 'domain-taken',
    })
    const elsewhere = on.agent.create(tcpSpec(port, { domain: 'elsewhere.test:1' }))
    await expect(elsewhere).rejects.toMatchObject({ serviceCode: 'ERR_NGROK_301' })
    await on.agent.remove(domain)
    expect(on.agent.list()).toEqual([])
  })

  it('has of the default policy what connections can meet', async () => {
    const on = await agentOnGateway({ gateway: { tcpListen: somePorts() } })
    const policy = {
      on_tcp_connect: [{ actions: [{ type: 'restrict-ips', config: { deny: ['127.0.0.1/32'] } }] }],
      on_http_request: [{ actions: [{ type: 'deny' }] }],
    }
    writeFileSync(join(on.folder, 'default-policy.json'), JSON.stringify(policy))
    await on.agent.start()
    await linkUp(on.agent)
    const { port } = await startTcpService(echo)
    const { tunnel } = await on.agent.create(tcpSpec(port))
    expect(await answerAt(tunnel.spec.domain)).toBe('broken')
    const { on_tcp_connect } = policy
    expect(on.agent.policyInForce(tunnel)).toEqual({ on_tcp_connect })
    const own = { on_tcp_connect: [] }
    const open = await on.agent.create(tcpSpec(port, { policy: own }))
    expect(await answerAt(open.tunnel.spec.domain)).toBe('hello')
  })

  it('is refused with rules that nothing of it can come to, before anything is written', async () => {
    const on = await agentOnGateway({ gateway: { tcpListen: somePorts() } })
    await on.agent.start()
    const policy = { on_http_request: [{ actions: [{ type: 'deny' }] }], on_http_response: [] }
    await expect(on.agent.create(tcpSpec(1, { policy }))).rejects.toMatchObject({
      code: 'policy-invalid',
      errors: [{ pointer: '/policy/on_http_request' }],
    })
    expect(on.agent.list()).toEqual([])
  })

  it('is changed by one at a time, also at the address that it has just been given', async () => {
    const { agent, connector } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    const opening = gate()
    connector.onOpen = opening.wait
    const created = agent.create(tcpSpec(1))
    await eventually(() => expect(agent.list()).toHaveLength(1))
    const [first] = agent.list()
    // Until this is over, whoever comes waits, and the tunnel gets its address.
    const planned = agent.replaceAll([], { isDryRun: true })
    const { address } = connector
    const replaced = agent.replace(address, tcpSpec(2, { domain: address }))
    const removed = agent.remove(first?.id ?? '')
    opening.open()
    expect((await created).tunnel.spec.domain).toBe(address)
    await planned
    await removed
    const { tunnel, created: isNew } = await replaced
    expect([isNew, tunnel.id === first?.id]).toEqual([true, false])
    expect(agent.list()).toMatchObject([
      { id: tunnel.id, spec: { domain: address, forwardsTo: 'localhost:2' } },
    ])
    expect(connector.last.endpoints.get(address)?.dialUrl).toBe('tcp://localhost:2')
  })
})
