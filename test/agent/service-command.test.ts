import { writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { carriesTraffic, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { connectSdk, type RunningGateway, startGateway } from '../helpers/running-gateway.ts'

const NAMES = ['a', 'b'] as const
const NOT_READY = 'There is no link to the gateway.'

/** A device with two tunnels, and who tells it what to do. */
async function deviceWithTunnels() {
  const running = await startManaged()
  const on = await startedOnGateway({ running })
  await on.createTunnels(...NAMES)
  await carriesTraffic(on)
  const { registry } = running.gateway.parts
  return {
    ...on,
    ...(await managerOf(running)),
    hosts: () => [...registry.all()].map(({ host }) => host).sort(),
  }
}

const startManaged = () => startGateway({ apiListen: { host: '127.0.0.1', port: 0 } })

async function managerOf({ gateway, addresses }: RunningGateway) {
  if (!addresses.api) throw new Error('the management API does not listen')
  const baseUrl = `http://${formatListenAddress(addresses.api)}/tunnel_sessions`
  const authorization = `Bearer ${(await gateway.provisionApiKey({ description: 'test' })).reveal()}`
  return {
    sessions: () => [...gateway.parts.sessions.all()].map(({ id }) => id),
    tell: (sessionId: string | undefined, command: string) =>
      fetch(`${baseUrl}/${sessionId}/${command}`, {
        method: 'POST',
        headers: { authorization, 'svc-version': '2' },
      }),
  }
}

async function isParked({ agent, hosts }: Awaited<ReturnType<typeof deviceWithTunnels>>) {
  await eventually(() => expect(agent.status().link.state).toBe('parked'))
  await eventually(() => expect(hosts()).toEqual([]))
}

describe('a device that is told by the management API', () => {
  it('to restart has a new session, on which its tunnels serve again', async () => {
    const on = await deviceWithTunnels()
    const [first] = on.sessions()
    expect((await on.tell(first, 'restart')).status).toBe(204)
    await eventually(() => {
      expect(on.sessions()).toHaveLength(1)
      expect(on.sessions()).not.toContain(first)
    })
    await carriesTraffic(on)
    expect(on.hosts()).toEqual(['a.site.test', 'b.site.test'])
  })

  it('to stop takes its endpoints down, stays away and says so', async () => {
    const on = await deviceWithTunnels()
    const [first] = on.sessions()
    expect((await on.tell(first, 'stop')).status).toBe(204)
    await isParked(on)
    expect(await on.visit('a')).toBe(404)
    const status = on.agent.status()
    expect(status).toMatchObject({
      ready: false,
      notReady: [NOT_READY],
      tunnels: { waiting: 2 },
      link: { state: 'parked', reason: 'auth', nextRetryAt: undefined },
    })
    expect(status.verdict).toBe('0 of 2 tunnels work. The gateway told this device to stop.')
    expect(status.causes[0]?.remedy).toMatch(/^To connect again, restart the agent or /)
    for (const tunnel of on.agent.list()) {
      expect(tunnel.status).toMatchObject({
        state: 'waiting',
        reason: 'auth',
        lastError: 'the gateway told this device to stop',
        nextRetryAt: undefined,
      })
    }
  })

  it('to stop is off the list as soon as it has said all, and does not mind', async () => {
    const on = await deviceWithTunnels()
    const stopped = on.tell(on.sessions()[0], 'stop')
    expect((await stopped).status).toBe(204)
    await eventually(() => expect(on.sessions()).toEqual([]))
    await eventually(() => expect(on.proxy.open).toBe(0))
    // Not for want of heartbeats.
    expect(on.logText()).toContain('the agent was stopped by command')
    expect(on.agent.status().link).toMatchObject({
      state: 'parked',
      lastError: 'the gateway told this device to stop',
    })
    expect(on.agentLog()).not.toMatch(/broke|heartbeat|failed at/)
    expect(on.logText().match(/agent online/g)).toHaveLength(1)
  })

  it('to stop with nothing open is off the list, too', async () => {
    const running = await startGateway()
    const told = createDeferred<void>()
    await connectSdk(running, { onStop: () => told.resolve() })
    const { sessions } = running.gateway.parts
    const [session] = sessions.all()
    await session?.command('stop')
    await told.promise
    await eventually(() => expect(sessions.size).toBe(0))
  })

  it('to stop is back with another authtoken, and with a tunnel that was asked for meanwhile', async () => {
    const on = await deviceWithTunnels()
    await on.tell(on.sessions()[0], 'stop')
    await isParked(on)
    await on.createTunnels('c')
    expect(on.states()).toEqual(['waiting', 'waiting', 'waiting'])
    const { authtoken } = await on.gateway.parts.issuer.createCredential({})
    writeFileSync(on.tokenPath, authtoken.reveal())
    await carriesTraffic(on)
    expect(on.agent.status()).toMatchObject({ ready: true, link: { state: 'up' } })
  })

  it('to update does so where its program knows how', async () => {
    const running = await startManaged()
    const heard: string[] = []
    await connectSdk(running, { onUpdate: (version) => heard.push(version) })
    const { tell, sessions } = await managerOf(running)
    expect((await tell(sessions()[0], 'update')).status).toBe(204)
    await eventually(() => expect(heard).toEqual(['']))
  })

  it('to update says that it cannot', async () => {
    const on = await deviceWithTunnels()
    const answer = await on.tell(on.sessions()[0], 'update')
    expect(await answer.json()).toMatchObject({ error_code: 'ERR_NGROK_806' })
    expect(on.agent.status().link.state).toBe('up')
  })
})
