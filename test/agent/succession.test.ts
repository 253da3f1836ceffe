import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Succession } from '../../src/agent/succession.ts'
import { linkUp, specOf } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { agentOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { refusal } from '../helpers/fake-connector.ts'

/** Two agents of one device, as an old and a new process of it; the older one serves. */
async function twoProcesses() {
  const on = await agentOnGateway({ instance: 'process-1' })
  await on.agent.start()
  await linkUp(on.agent)
  await on.createTunnels('a', 'b')
  return { ...on, next: on.another(), sessions: on.gateway.parts.sessions }
}

/** A hundred visits, one after the other: all but `hello`. */
async function failuresOf(visit: (name: string) => Promise<string | number>) {
  const failures: (string | number)[] = []
  for (let count = 0; count < 100; count += 1) {
    const answer = await visit(count % 2 ? 'a' : 'b')
    if (answer !== 'hello') failures.push(answer)
  }
  return failures
}

describe('a process that takes another one’s place', () => {
  it('has its names, and the older one takes none of them back', async () => {
    const { agent, next, visit, sessions, gateway } = await twoProcesses()
    agent.succession.yield()
    await next.start()
    await next.succession.settled()
    expect(next.list().map(({ status }) => status.state)).toEqual(['online', 'online'])
    // Our gateway ends the older session, which has nothing any more.
    await eventually(() => expect(agent.status().link.state).not.toBe('up'))
    expect(await failuresOf(visit)).toEqual([])
    expect(sessions.size).toBe(1)
    expect([...sessions.all()].map(({ duplicate }) => duplicate)).toEqual([undefined])
    await agent.stop()
    expect(await failuresOf(visit)).toEqual([])
    expect(gateway.parts.registry.size).toBe(2)
  })

  it('leaves them to the older one when it ends, whether that still has its session or not', async () => {
    const { agent, next, visit, gateway } = await twoProcesses()
    agent.succession.yield()
    await next.start()
    await next.succession.settled()
    await next.stop()
    agent.succession.resume()
    expect(await failuresOf(visit)).toEqual([])
    await eventually(() => expect(gateway.parts.registry.size).toBe(2))
    // Nobody has taken anything this time.
    agent.succession.yield()
    agent.succession.resume()
    expect(await failuresOf(visit)).toEqual([])
    expect(agent.status().tunnels.online).toBe(2)
  })

  it('opens nothing again while it yields, whatever has changed', async () => {
    const { agent, connector } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    agent.succession.yield()
    const opened = connector.journal.length
    connector.last.request.onCommand('restart')
    const replaced = agent.replace('a.site.test', { ...specOf('a'), policy: {} })
    await replaced
    expect(connector.journal).toHaveLength(opened)
    expect(connector.connects).toBe(1)
    agent.succession.resume()
    await eventually(() => expect(connector.connects).toBe(2))
    await eventually(() => expect(connector.journal.slice(opened)).toContain('open a.site.test'))
  })
})

describe('an authtoken that is replaced while a process yields', () => {
  it('is taken up, and opens no session before that is over', async () => {
    const { agent, connector, folder, captured } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    agent.succession.yield()
    const takenUp = () => captured.lines.filter(({ msg }) => msg === 'authtoken loaded')
    // Each time there would be time to connect with the one before.
    for (let rotation = 1; rotation <= 5; rotation += 1) {
      writeFileSync(join(folder, 'authtoken'), `rotated-token-${rotation}`)
      await eventually(() => expect(takenUp()).toHaveLength(1 + rotation))
    }
    expect(connector.connects).toBe(1)
    expect(connector.last.isAlive).toBe(true)
    agent.succession.resume()
    await eventually(() => expect(connector.connects).toBe(2))
    expect(connector.last.request.authtoken.reveal()).toBe('rotated-token-5')
  })
})

describe('a process whose place another one has taken', () => {
  it.each([
    [
      'closes its endpoints at the hosted service, which gives a name out when it is free',
      true,
      true,
    ],
    ['leaves them to a gateway of ours, which holds the names', false, false],
  ])('%s', async (_, isHosted, hasToClose) => {
    const { agent } = await agentOnFake()
    const link = { yield: () => {}, resume: () => {} }
    const succession = new Succession({ agent, link: () => link, isHosted, onResume: () => {} })
    // A stop that no other process waits for is a restart: both hold the names for a moment.
    expect(succession.hasToClose).toBe(false)
    succession.yield()
    expect(succession.hasToClose).toBe(hasToClose)
    succession.resume()
    expect(succession.hasToClose).toBe(false)
  })

  it('closes none as it ends, at a gateway of ours', async () => {
    const { agent, connector } = await agentOnFake()
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    agent.succession.yield()
    await agent.stop()
    expect(connector.journal.filter((line) => line.startsWith('close'))).toEqual(['close session'])
  })
})

describe('settled', () => {
  it('is known when each endpoint is open, or could not be', async () => {
    const { agent, connector } = await agentOnFake({ own: undefined })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    await agent.create(specOf('b'))
    connector.onOpen = ({ domain }) => {
      if (domain === 'b.site.test') throw refusal(334)
    }
    connector.last.isLost = true
    connector.last.request.onLost({
      reason: 'network',
      detail: 'gone',
      remedy: '',
      permanent: false,
    })
    await agent.succession.settled()
    expect(agent.status().link.state).toBe('up')
    const states = agent.list().map(({ status }) => status.state)
    expect(states).toEqual(['online', 'waiting'])
  })
})
