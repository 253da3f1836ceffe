import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { PoisonedError } from '../../src/agent/connector.ts'
import { StartError } from '../../src/base/app-error.ts'
import { systemClock } from '../../src/base/clock.ts'
import { Secret } from '../../src/base/secret.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { FAST_TIMINGS, linkUp, specOf } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { eventually } from '../helpers/eventually.ts'
import { gate, refusal } from '../helpers/fake-connector.ts'

const OWN = { domain: 'localhost', socketPath: '/run/api.sock' }

/** An agent that was here before, with these tunnels in its database. */
async function withTunnels(names: readonly string[]) {
  const on = await agentOnFake()
  await on.agent.start()
  await linkUp(on.agent)
  for (const name of names) await on.agent.create(specOf(name))
  await on.agent.stop()
  on.connector.journal.length = 0
  return on
}

describe('restore', () => {
  it('opens every tunnel again, with the same id and in the same order', async () => {
    const { agent, connector, again } = await withTunnels(['b', 'a', 'c'])
    const before = agent.list().map(({ id, spec }) => [id, spec])
    const next = again()
    await next.start()
    await linkUp(next)
    await eventually(() => expect(next.status().tunnels.online).toBe(3))
    expect(next.list().map(({ id, spec }) => [id, spec])).toEqual(before)
    expect(connector.online.sort()).toEqual(['a.site.test', 'b.site.test', 'c.site.test'])
  })

  it('does not let one that is refused, or one that hangs, hold back the others', async () => {
    const { connector, again } = await withTunnels(['a', 'b', 'c', 'd'])
    const hanging = gate()
    connector.onOpen = ({ domain }) => {
      if (domain === 'a.site.test') throw refusal(316)
      return domain === 'b.site.test' ? hanging.wait() : undefined
    }
    const next = again()
    await next.start()
    await eventually(() => {
      const states = next.list().map(({ status }) => status.state)
      expect(states).toEqual(['refused', 'opening', 'online', 'online'])
    })
    expect(next.find('a').status).toMatchObject({ reason: 'acl', serviceCode: 'ERR_NGROK_316' })
    hanging.open()
    await eventually(() => expect(next.find('b').status.state).toBe('online'))
  })

  it('starts without the world, shows what is missing, and heals by itself', async () => {
    const { connector, again, folder } = await withTunnels(['a'])
    const next = again({ authtoken: { files: [join(folder, 'authtoken')], value: undefined } })
    await next.start()
    expect(next.status()).toMatchObject({
      ready: false,
      verdict: 'The tunnel does not work. The authtoken file is missing.',
      causes: [{ remedy: expect.stringMatching(/^Write an authtoken to /) }],
      link: { state: 'waiting', reason: 'auth' },
    })
    expect(next.find('a').status).toMatchObject({ state: 'waiting', reason: 'auth' })
    expect(next.find('a').url).toBe('https://a.site.test:8443')
    writeFileSync(join(folder, 'authtoken'), 'good-token')
    await eventually(() => expect(next.find('a').status.state).toBe('online'))
    expect(connector.last.request.authtoken.reveal()).toBe('good-token')
  })

  it('knows a wrong clock from a wrong certificate where only the ingress can be asked', async () => {
    const { agent } = await agentOnFake({
      own: { ...OWN, domain: 'agent.nowhere.test' },
      clock: { ...systemClock, now: () => Date.now() + 400 * 86_400_000 },
    })
    await agent.start()
    await eventually(() => expect(agent.status().link).toMatchObject({ reason: 'clock' }))
  })

  it('shows the others when a row is damaged, and says so', async () => {
    const { again, folder, captured } = await withTunnels(['a', 'b', 'c'])
    const file = new Sqlite(join(folder, 'agent.db'))
    file.exec("UPDATE tunnels SET forwards_to = 'localhost:22' WHERE domain = 'b.site.test'")
    file.close()
    // It would put the row back.
    rmSync(join(folder, 'agent.db.journal'))
    const next = again({ upstream: { timeout: 60, health: 'off' } })
    await next.start()
    expect(next.list().map(({ spec }) => spec.domain)).toEqual(['a.site.test', 'c.site.test'])
    expect(captured.lines).toContainEqual(
      expect.objectContaining({
        level: 'error',
        id: expect.stringMatching(/^tun_/),
        problem: expect.stringContaining('checksum'),
      }),
    )
    expect(captured.lines).toContainEqual(expect.objectContaining({ tunnels: 2, damaged: 1 }))
    await linkUp(next)
    expect(next.status()).toMatchObject({
      healthy: false,
      damagedRows: [{ id: expect.stringMatching(/^tun_/), domain: 'b.site.test' }],
      verdict: 'All 2 tunnels work. The stored tunnel b.site.test is damaged.',
    })
    await next.create(specOf('d'))
    expect(next.status().damagedRows).toHaveLength(1)
    await next.create(specOf('b'))
    expect(next.status().damagedRows).toEqual([])
  })

  it('clears away what an earlier process had only marked as removed', async () => {
    const { again, folder } = await withTunnels(['a', 'b'])
    const file = new Sqlite(join(folder, 'agent.db'))
    onTestFinished(() => void file.close())
    file.exec("UPDATE tunnels SET removed_at = 1 WHERE domain = 'a.site.test'")
    rmSync(join(folder, 'agent.db.journal'))
    await again().start()
    expect(file.prepare('SELECT domain FROM tunnels').pluck().all()).toEqual(['b.site.test'])
  })
})

describe('the link', () => {
  it('takes every tunnel down with its reason, and up again', async () => {
    const { agent, connector } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    const away = gate()
    connector.onConnect = away.wait
    connector.last.lose('the wire was cut')
    await eventually(() =>
      expect(agent.find('a').status).toMatchObject({
        state: 'waiting',
        reason: 'network',
        lastError: 'the wire was cut',
      }),
    )
    expect(agent.status().notReady).toContain('There is no link to the gateway.')
    away.open()
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
    expect(agent.status()).toMatchObject({ ready: true, notReady: [] })
  })

  it('is parked when the service says stop, until the process is another one', async () => {
    const { agent, connector, again } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    connector.last.command('stop')
    await eventually(() => {
      expect(agent.status().link.state).toBe('parked')
      expect(agent.find('a').status).toMatchObject({ state: 'waiting', reason: 'auth' })
    })
    await agent.stop()
    const next = again()
    await next.start()
    await eventually(() => expect(next.find('a').status.state).toBe('online'))
  })

  it('tells the service once on each session that all is open that can be', async () => {
    const { connector, again } = await withTunnels(['a', 'b', 'c'])
    const hanging = gate()
    let isTransient = true
    connector.onOpen = ({ domain }) => {
      if (domain === 'a.site.test') throw refusal(316)
      if (domain === 'b.site.test' && isTransient) throw refusal(803)
      return domain === 'c.site.test' ? hanging.wait() : undefined
    }
    const next = again()
    await next.start()
    await linkUp(next)
    await eventually(() => expect(next.find('a').status.state).toBe('refused'))
    hanging.open()
    await eventually(() => expect(next.find('c').status.state).toBe('online'))
    // One of them may still come: visitors of its name wait.
    expect(connector.last.completed).toBe(0)
    isTransient = false
    await eventually(() => expect(next.find('b').status.state).toBe('online'))
    await eventually(() => expect(connector.last.completed).toBe(1))
    connector.last.lose()
    await eventually(() => expect(connector.sessions).toHaveLength(3))
    await eventually(() => expect(connector.last.completed).toBe(1))
  })

  it('says which device this is', async () => {
    const { agent, connector } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    const { deviceId } = agent.status()
    expect(deviceId).toMatch(/^dev_/)
    expect(JSON.parse(connector.last.request.metadata)).toEqual({
      device_id: deviceId,
      instance: expect.stringMatching(/^[0-9a-f-]{36}$/),
      tells_complete: true,
    })
  })

  it('says when only a new process helps', async () => {
    let poisoned = 0
    const { agent, connector } = await agentOnFake({
      onPoisoned: () => {
        poisoned += 1
      },
    })
    connector.onConnect = () => {
      throw new PoisonedError('connecting took too long')
    }
    await agent.start()
    await eventually(() => expect(poisoned).toBe(1))
    await agent.stop()
  })
})

describe('the own endpoint', () => {
  it('is opened on the unix socket, and proved by a probe', async () => {
    const { agent, connector } = await agentOnFake({ own: OWN })
    await agent.start()
    await eventually(() => expect(agent.status().ownEndpoint?.reachable).toBe('yes'))
    expect(connector.last.endpoints.get('localhost')).toMatchObject({
      dialUrl: 'unix:/run/api.sock',
      policy: undefined,
    })
    expect(agent.status()).toMatchObject({
      verdict: 'No tunnels.',
      healthy: true,
      ownEndpoint: { state: 'online', url: 'https://localhost:8443' },
      clock: { skewMs: expect.any(Number) },
    })
  })

  it('lets nothing be called online while the agent does not reach itself', async () => {
    const { agent, connector, setReachable } = await agentOnFake({ own: OWN })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    const [first] = connector.sessions
    setReachable(false)
    await eventually(() =>
      expect(agent.find('a').status).toMatchObject({ state: 'waiting', reason: 'network' }),
    )
    expect(agent.status()).toMatchObject({
      link: { state: 'suspect' },
      ready: false,
      ownEndpoint: { reachable: 'no' },
    })
    // Two failures in a row build a new link, which is not believed either.
    await eventually(() => expect(connector.sessions.length).toBeGreaterThan(1))
    expect(first?.isClosed).toBe(false)
    await eventually(() => expect(connector.online).toContain('a.site.test'))
    expect(agent.find('a').status.state).not.toBe('online')
    setReachable(true)
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
  })

  it('keeps its link, and the tunnels online, while the device is only busy', async () => {
    const { agent, connector, setReachable } = await agentOnFake({ own: OWN })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    setReachable(false)
    await eventually(() => expect(agent.status().link.state).toBe('suspect'))
    setReachable('saturated')
    await eventually(() => expect(agent.status().link.state).toBe('up'))
    await eventually(() => expect(agent.status().ownEndpoint?.reason).toBe('saturated'))
    const sessions = connector.sessions.length
    const { lastProbeAt = 0 } = agent.status().ownEndpoint ?? {}
    const isLater = () => (agent.status().ownEndpoint?.lastProbeAt ?? 0) > lastProbeAt
    await eventually(() => expect(isLater()).toBe(true))
    expect(agent.status()).toMatchObject({
      healthy: false,
      ready: true,
      verdict: expect.stringContaining('Too many concurrent requests.'),
      ownEndpoint: { state: 'online', reachable: 'no' },
    })
    expect(agent.find('a').status.state).toBe('online')
    expect(connector.sessions).toHaveLength(sessions)
    setReachable(true)
    await eventually(() => expect(agent.status().verdict).not.toContain('concurrent'))
  })

  it('casts no doubt on the tunnels when it is refused itself', async () => {
    const { agent, connector, setReachable } = await agentOnFake({ own: OWN })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    setReachable(false)
    await eventually(() => expect(agent.status().link.state).toBe('suspect'))
    connector.onOpen = ({ domain }) => {
      if (domain === OWN.domain) throw refusal(316)
    }
    connector.last.lose()
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
    expect(agent.status()).toMatchObject({
      ready: false,
      causes: expect.arrayContaining([
        expect.objectContaining({ short: 'the agent API is not online at localhost' }),
      ]),
    })
  })
})

describe('the default policy', () => {
  it('is what tunnels without one have, also after the file changed', async () => {
    const { agent, connector, policyPath } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    const policy = { on_http_response: [] }
    await agent.create(specOf('plain'))
    await agent.create({ ...specOf('own'), policy })
    expect(agent.policyInForce(agent.find('plain'))).toEqual({ on_http_request: [] })
    expect(agent.policyInForce(agent.find('own'))).toEqual(policy)
    writeFileSync(policyPath, '{"on_http_request": [], "on_http_response": []}')
    await eventually(() =>
      expect(connector.last.endpoints.get('plain.site.test')?.policy).toBe(
        '{"on_http_request":[],"on_http_response":[]}',
      ),
    )
    expect(connector.journal.filter((line) => line === 'open own.site.test')).toHaveLength(1)
  })

  it('is tried again at once when it was refused and is corrected', async () => {
    const { agent, connector, policyPath } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    connector.onOpen = ({ policy }) => {
      if (!policy?.includes('on_http_response')) throw refusal(9026)
    }
    connector.last.lose()
    await eventually(() => expect(agent.find('a').status.state).toBe('refused'))
    writeFileSync(policyPath, '{"on_http_response": []}')
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
  })

  it('stops the start when there never was one', async () => {
    const { agent, policyPath } = await agentOnFake()
    rmSync(policyPath)
    await expect(async () => agent.start()).rejects.toThrow(StartError)
  })
})

describe('the authtoken', () => {
  it('is changed while the agent runs, from a wrong one to the right one', async () => {
    const { agent, connector, folder } = await agentOnFake()
    connector.onConnect = ({ authtoken }) => {
      if (authtoken.reveal() !== 'right') throw refusal(107, 'the authtoken is not valid')
    }
    await agent.start()
    await eventually(() =>
      expect(agent.status().link).toMatchObject({
        state: 'refused',
        reason: 'auth',
        serviceCode: 'ERR_NGROK_107',
      }),
    )
    writeFileSync(join(folder, 'authtoken'), 'right\n')
    await linkUp(agent)
  })

  it('appears in nothing that the agent shows, logs or stores', async () => {
    const canary = 'canary-4f1c9e'
    const { agent, connector, captured, folder } = await agentOnFake({
      authtoken: { files: [], value: new Secret(canary) },
      own: OWN,
    })
    connector.onConnect = ({ authtoken }) => {
      throw refusal(105, authtoken.scrub(`Your authtoken: ${canary}`))
    }
    await agent.start()
    await agent.create(specOf('a'))
    await eventually(() => expect(agent.status().link.state).toBe('refused'))
    const shown = JSON.stringify([agent.status(), agent.list()])
    await agent.stop()
    const stored = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'latin1'))
    expect(shown).toContain('Your authtoken: [secret]')
    expect([captured.text(), shown, ...stored].join('\n')).not.toContain(canary)
  })
})

describe('onChange', () => {
  it('tells many changes as one, and nothing after it was let go', async () => {
    const { agent } = await agentOnFake()
    let news = 0
    const stop = agent.onChange(() => {
      news += 1
    })
    await agent.start()
    await linkUp(agent)
    await eventually(() => expect(news).toBeGreaterThan(0))
    const before = news
    const creations = ['a', 'b', 'c', 'd', 'e'].map((name) => agent.create(specOf(name)))
    await Promise.all(creations)
    await eventually(() => expect(news).toBeGreaterThan(before))
    expect(news - before).toBeLessThan(5)
    stop()
    const after = news
    await agent.remove('a')
    await new Promise((resolve) => setImmediate(resolve))
    expect(news).toBe(after)
  })
})

describe('a clock that is set', () => {
  it('is told at once, and moves what is shown with it', async () => {
    let movedMs = 0
    const clock = { ...systemClock, now: () => systemClock.now() + movedMs }
    const { agent, captured } = await agentOnFake({ own: OWN, clock })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    await eventually(() => expect(agent.status().clock.skewMs).toBe(0))
    const before = agent.find('a').status.since
    movedMs = 400 * 86_400_000
    const { causes, link, clock: told } = agent.status()
    expect(causes.map(({ problem }) => problem)).toContain(
      'the device clock is 400 days ahead of the gateway',
    )
    // Two clocks are read one after the other, on a machine that may be busy.
    expect(agent.find('a').status.since - before - movedMs).toBeLessThan(60_000)
    expect(agent.find('a').status.since).toBeGreaterThan(before + movedMs - 60_000)
    expect(told.now - link.since).toBeLessThan(movedMs)
    await eventually(() => expect(captured.text()).toContain('the device clock was changed'))
  })
})

describe('a start that waits for its policy', () => {
  it('answers no question about tunnels and takes no change until they are restored', async () => {
    const { agent, again, policyPath } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    const { tunnel } = await agent.create(specOf('a', 'localhost:8001'))
    await agent.stop()
    // One that it has not seen yet is checked in a process of its own.
    writeFileSync(policyPath, '{"on_http_request": [], "on_http_response": []}')
    const next = again()
    const starting = next.start()
    const answers = await Promise.all(
      [
        () => next.requireRestored(),
        () => next.find('a'),
        () => next.create(specOf('a', 'localhost:8002')),
        () => next.replace('a.site.test', specOf('a', 'localhost:8002')),
        () => next.replaceAll([]),
        () => next.replaceAll([], { isDryRun: true }),
        () => next.remove('a'),
      ]
        .map(async (ask) => ask())
        .map((answer) => answer.catch((error) => error)),
    )
    for (const answer of answers) expect(answer).toMatchObject({ code: 'starting', retryAfterS: 1 })
    expect(next.status().tunnels.total).toBe(0)
    await starting
    next.requireRestored()
    expect(next.list().map(({ id, spec }) => [id, spec.forwardsTo])).toEqual([
      [tunnel.id, 'localhost:8001'],
    ])
  })
})

describe('stop', () => {
  it('wins over a start that is under way', async () => {
    const { agent, connector } = await agentOnFake()
    const starting = agent.start()
    await agent.stop()
    await starting
    expect(agent.list()).toEqual([])
    expect(connector.connects).toBe(0)
  })

  it('drains the session of our gateway, closes no endpoint, and keeps the rows', async () => {
    const { agent, connector, again } = await agentOnFake({ own: OWN })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    connector.journal.length = 0
    const draining = gate()
    connector.onDrain = async () => {
      await draining.wait()
      return true
    }
    const stopped = agent.stop()
    await eventually(() => expect(connector.journal).toEqual(['drain 500']))
    await expect(agent.create(specOf('b'))).rejects.toMatchObject({ code: 'shutting-down' })
    draining.open()
    await stopped
    expect(connector.journal).toEqual(['drain 500', 'close session'])
    const next = again()
    await next.start()
    expect(next.list()).toHaveLength(1)
  })

  it('does not wait for a service that says nothing', async () => {
    const timings = { ...FAST_TIMINGS, stopMs: 100, drainMs: 100 }
    const { agent, connector } = await agentOnFake({ timings })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    const draining = gate()
    connector.onDrain = async () => {
      await draining.wait()
      return true
    }
    await agent.stop()
    await agent.stop()
    draining.open()
  })
})
