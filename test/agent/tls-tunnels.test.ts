import { once } from 'node:events'
import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import type { TunnelSpec } from '../../src/agent/tunnel.ts'
import { linkUp } from '../helpers/agent-in-folder.ts'
import { agentOnGateway, isDown, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import type { RunningGateway } from '../helpers/running-gateway.ts'
import { readAll } from '../helpers/tcp-site.ts'
import { startTlsService, visitTls } from '../helpers/tls-site.ts'

const HOST = 'cam.site.test'
const echo = (socket: Socket) => socket.pipe(socket)

const tlsSpec = (port: number, change: Partial<TunnelSpec> = {}): TunnelSpec => ({
  protocol: 'tls',
  forwardsTo: `localhost:${port}`,
  domain: HOST,
  policy: null,
  ...change,
})

async function answerAt(on: RunningGateway, ca: string): Promise<string> {
  const visitor = visitTls(on, HOST, { ca })
  visitor.end('hello')
  return readAll(visitor)
}

describe('a tls tunnel', () => {
  it('leads to the service, over restarts of agent and gateway too', async () => {
    const on = await startedOnGateway()
    const { port, caPem } = await startTlsService(echo)
    const { tunnel, pending } = await on.agent.create(tlsSpec(port))
    const url = `tls://${HOST}:${on.addresses.https.port}`
    expect([pending, tunnel.url]).toEqual([false, url])
    expect(await answerAt(on, caPem)).toBe('hello')
    await on.agent.stop()
    const next = on.another()
    await next.start()
    await linkUp(next)
    await eventually(() => expect(next.list()[0]?.status.state).toBe('online'))
    expect(next.list()[0]).toMatchObject({ id: tunnel.id, url })
    expect(await answerAt(on, caPem)).toBe('hello')
    await on.restartGateway()
    await eventually(async () => expect(await answerAt(on, caPem)).toBe('hello'))
  })

  it('has its url while the link is down, and who comes after an outage waits', async () => {
    const on = await startedOnGateway()
    const { port, caPem } = await startTlsService(echo)
    await on.agent.create(tlsSpec(port))
    on.proxy.refuse()
    on.proxy.cut()
    await isDown(on)
    const { tunnel, pending } = await on.agent.create(tlsSpec(port, { domain: 'b.site.test' }))
    expect([pending, tunnel.url]).toEqual([true, `tls://b.site.test:${on.addresses.https.port}`])
    const answers = [answerAt(on, caPem), answerAt(on, caPem)]
    on.proxy.heal()
    expect(await Promise.all(answers)).toEqual(['hello', 'hello'])
  })

  it('is broken off with its device, and made before the one it follows is broken', async () => {
    const on = await startedOnGateway()
    const [before, after] = [await startTlsService(echo), await startTlsService(echo)]
    await on.agent.create(tlsSpec(before.port))
    const open = visitTls(on, HOST, { ca: before.caPem })
    open.write('x')
    await once(open, 'data')
    await on.agent.replace(HOST, tlsSpec(after.port))
    expect(await answerAt(on, after.caPem)).toBe('hello')
    expect(open.destroyed).toBe(false)
    on.proxy.cut()
    // It may be an error, too.
    await eventually(() => expect(open.destroyed).toBe(true))
  })

  it('is refused with rules that nothing of it can come to', async () => {
    const on = await agentOnGateway()
    await on.agent.start()
    const policy = { on_http_request: [{ actions: [{ type: 'deny' }] }] }
    await expect(on.agent.create(tlsSpec(1, { policy }))).rejects.toMatchObject({
      code: 'policy-invalid',
      errors: [{ pointer: '/policy/on_http_request' }],
    })
    expect(on.agent.list()).toEqual([])
  })
})
