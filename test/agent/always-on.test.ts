import { cpSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { FAST_TIMINGS, linkUp, specOf } from '../helpers/agent-in-folder.ts'
import {
  type AgentOnGateway,
  carriesTraffic,
  startedOnGateway,
} from '../helpers/agent-on-gateway.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const EVERY_MS = 20

/** Visitors of `a`, fifty a second, until the end; then what they got that was not the device's answer. */
function visitors(on: AgentOnGateway) {
  const visits: Promise<string | number>[] = []
  const timer = setInterval(() => {
    visits.push(on.visit('a').catch((error: Error) => error.message))
  }, EVERY_MS)
  onTestFinished(() => clearInterval(timer))
  return {
    end: async () => {
      clearInterval(timer)
      const answers = await Promise.all(visits)
      return { count: answers.length, failed: answers.filter((answer) => answer !== 'hello') }
    },
  }
}

/** A service on the device that answers when it is told to. */
async function slowService() {
  const waiting: (() => void)[] = []
  const server = createServer((_request, response) => {
    waiting.push(() => response.end('whole'))
    response.writeHead(200)
    response.write('the ')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close().closeAllConnections())
  return {
    port: (server.address() as AddressInfo).port,
    get waiting() {
      return waiting.length
    },
    answer: () => {
      for (const answer of waiting.splice(0)) answer()
    },
  }
}

async function device(change: Parameters<typeof startedOnGateway>[0] = {}) {
  const on = await startedOnGateway(change)
  await on.createTunnels('a')
  await carriesTraffic(on)
  const ingress = `http://${formatListenAddress(on.addresses.http)}`
  return {
    ...on,
    sessions: () => on.gateway.parts.sessions.size,
    download: (name: string) => publicRequest({ ingress, host: `${name}.site.test` }),
  }
}

describe('nobody notices', () => {
  it('a changed policy', async () => {
    const on = await device()
    const load = visitors(on)
    const [{ forwardsTo } = { forwardsTo: '' }] = on.agent.list().map(({ spec }) => spec)
    for (let turn = 0; turn < 10; turn += 1) {
      const policy = {
        on_http_response: [
          { actions: [{ type: 'add-headers', config: { headers: { turn: `${turn}` } } }] },
        ],
      }
      const { pending } = await on.agent.replace('a.site.test', {
        ...specOf('a', forwardsTo),
        policy,
      })
      expect(pending).toBe(false)
    }
    const { count, failed } = await load.end()
    expect(failed).toEqual([])
    expect(count).toBeGreaterThan(0)
    expect(on.gateway.parts.registry.size).toBe(1)
  })

  it('a policy that the gateway refuses: the one before stays in force', async () => {
    const on = await device({ unknownActions: 'warn' })
    const load = visitors(on)
    const [{ forwardsTo } = { forwardsTo: '' }] = on.agent.list().map(({ spec }) => spec)
    const policy = { on_http_request: [{ expressions: ['conn.client_ip in ['], actions: [] }] }
    await expect(
      on.agent.replace('a.site.test', { ...specOf('a', forwardsTo), policy }),
    ).rejects.toMatchObject({ code: 'policy-invalid' })
    expect((await load.end()).failed).toEqual([])
  })

  it('another authtoken, and what is under way ends whole', async () => {
    const on = await device()
    const slow = await slowService()
    await on.agent.create(specOf('slow', `localhost:${slow.port}`))
    const download = on.download('slow')
    await eventually(() => expect(slow.waiting).toBe(1))
    const load = visitors(on)
    const [before] = [...on.gateway.parts.sessions.all()].map(({ id }) => id)
    const { issuer, authority } = on.gateway.parts
    const { ownerId, acl } = authority.authenticate(on.authtoken.reveal())
    const { authtoken } = await issuer.createCredential({ ownerId, acl })
    writeFileSync(on.tokenPath, authtoken.reveal())
    await eventually(() => {
      const taken = [...on.gateway.parts.sessions.all()].filter(({ id }) => id !== before)
      expect(taken.map(({ endpointCount }) => endpointCount)).toEqual([2])
    })
    slow.answer()
    expect((await download).text).toBe('the whole')
    await eventually(() => expect(on.sessions()).toBe(1))
    expect((await load.end()).failed).toEqual([])
    expect(on.agent.status()).toMatchObject({ healthy: true, link: { state: 'up' } })
  })

  it('an authtoken of another account', async () => {
    const on = await device()
    const load = visitors(on)
    const { issuer } = on.gateway.parts
    const { id: ownerId } = await issuer.createBotUser({ name: 'new owner' })
    const { authtoken } = await issuer.createCredential({ ownerId, acl: ['bind:a.site.test'] })
    writeFileSync(on.tokenPath, authtoken.reveal())
    const ownerOf = () => on.gateway.parts.registry.match('a.site.test', 'http')
    await eventually(() => expect(ownerOf()).toMatchObject({ ownerId }))
    await carriesTraffic(on)
    expect((await load.end()).failed).toEqual([])
  })

  it('a command to restart', async () => {
    const on = await device()
    const load = visitors(on)
    for (let turn = 0; turn < 3; turn += 1) {
      const [session] = on.gateway.parts.sessions.all()
      await session?.command('restart')
      await eventually(() => {
        const [next, ...others] = on.gateway.parts.sessions.all()
        expect([next?.endpointCount, others]).toEqual([1, []])
        expect(next?.id).not.toBe(session?.id)
      })
    }
    expect((await load.end()).failed).toEqual([])
  })

  it('a restart of the agent, and what is under way ends whole', async () => {
    const on = await device({ timings: { ...FAST_TIMINGS, drainMs: 10_000 } })
    const slow = await slowService()
    await on.agent.create(specOf('slow', `localhost:${slow.port}`))
    const download = on.download('slow')
    await eventually(() => expect(slow.waiting).toBe(1))
    const load = visitors(on)
    const stopped = on.agent.stop()
    await eventually(() => expect(on.gateway.parts.registry.size).toBe(0))
    slow.answer()
    expect((await download).text).toBe('the whole')
    await stopped
    const next = on.another()
    await next.start()
    await linkUp(next)
    await eventually(() =>
      expect(next.list().map(({ status }) => status.state)).toEqual(['online', 'online']),
    )
    expect((await load.end()).failed).toEqual([])
  })

  it('the end of one of two connections', async () => {
    const running = await startGateway()
    const second = await ChaosProxy.start(running.addresses.agent)
    const first = await ChaosProxy.start(running.addresses.agent)
    const addressOf = ({ address }: ChaosProxy) =>
      formatListenAddress(address).replace('127.0.0.1', 'localhost')
    const on = await device({ running, serverAddrs: [addressOf(first), addressOf(second)] })
    await eventually(() =>
      expect(on.agent.status().link).toMatchObject({
        serverAddr: addressOf(first),
        standby: { state: 'ready', serverAddr: addressOf(second) },
      }),
    )
    const load = visitors(on)
    first.cut()
    await eventually(() =>
      expect(on.agent.status().link).toMatchObject({
        state: 'up',
        serverAddr: addressOf(second),
        standby: { state: 'ready', serverAddr: addressOf(first) },
      }),
    )
    await carriesTraffic(on)
    expect((await load.end()).failed).toEqual([])
  })
})

it('keeps no session ready on a metered link', async () => {
  const running = await startGateway()
  const { addresses } = running
  const serverAddrs = ['127.0.0.1', 'localhost'].map((host) => `${host}:${addresses.agent.port}`)
  const link = { isMetered: true, isNoDelay: true, heartbeatS: undefined, probeS: undefined }
  const on = await device({ running, serverAddrs, link })
  expect(on.agent.status().link).toMatchObject({ state: 'up', standby: undefined })
  const [session] = running.gateway.parts.sessions.all()
  expect(session?.identity.ownHeartbeatMs).toBe(58_000)
})

describe('a copied data folder', () => {
  it('is a duplicate: the first one serves, both say so, and a new identity ends it', async () => {
    const on = await device()
    const folder = temporaryFolder()
    cpSync(on.folder, folder, { recursive: true })
    const copy = on.another({ folder })
    await copy.start()
    await eventually(() => expect(copy.status().link).toMatchObject({ state: 'duplicate' }))
    expect(copy.status().verdict).toContain('Another device has the same identity.')
    expect(copy.status().causes[0]?.remedy).toContain('device-agent identity reset')
    await eventually(() =>
      expect(on.agent.status().link.duplicate).toMatchObject({ ip: '127.0.0.1' }),
    )
    expect(on.agent.status().verdict).toContain('A second device has the identity')
    await carriesTraffic(on)
  })

  it('serves when the first one ends', async () => {
    const on = await device()
    const folder = temporaryFolder()
    cpSync(on.folder, folder, { recursive: true })
    const timings = { ...FAST_TIMINGS, link: { ...FAST_TIMINGS.link, duplicateRetryMs: 100 } }
    const copy = on.another({ folder, timings })
    await copy.start()
    await eventually(() => expect(copy.status().link).toMatchObject({ state: 'duplicate' }))
    await on.agent.stop()
    await eventually(() => expect(copy.list().map((it) => it.status.state)).toEqual(['online']))
    expect(await on.visit('a')).toBe('hello')
  })
})
