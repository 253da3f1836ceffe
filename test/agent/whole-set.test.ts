import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import { AppError } from '../../src/base/app-error.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { linkUp, specOf } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { eventually } from '../helpers/eventually.ts'
import { gate, refusal } from '../helpers/fake-connector.ts'

async function started(change: Parameters<typeof agentOnFake>[0] = {}) {
  const on = await agentOnFake(change)
  await on.agent.start()
  await linkUp(on.agent)
  /** What an agent finds that starts on this folder now, as after a power cut. */
  const found = async () => {
    const next = on.again()
    await next.start()
    return next.list().map(({ spec }) => `${spec.domain} ${spec.forwardsTo}`)
  }
  return { ...on, found }
}

const domains = (agent: Agent) => agent.list().map(({ spec }) => spec.domain)

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (reason) => reason,
  )
  expect(error).toBeInstanceOf(AppError)
  return error.code
}

describe('replaceAll', () => {
  it('makes the list all that there is, and opens before it closes', async () => {
    const { agent, connector, found } = await started()
    for (const name of ['a', 'b', 'c']) await agent.create(specOf(name))
    const ids = agent.list().map(({ id }) => id)
    connector.journal.length = 0
    const outcomes = await agent.replaceAll([specOf('a'), specOf('b', 'localhost:2'), specOf('d')])
    expect(outcomes.map(({ step, tunnel }) => [step.action, tunnel?.status.state])).toEqual([
      ['keep', 'online'],
      ['replace', 'online'],
      ['create', 'online'],
      ['delete', undefined],
    ])
    expect(agent.list().map(({ id }) => id)).toEqual([ids[0], ids[1], expect.any(String)])
    const ofB = connector.journal.filter((text) => text.endsWith(' b.site.test'))
    expect(ofB).toEqual(['open b.site.test', 'close b.site.test'])
    expect(connector.journal).not.toContain('open a.site.test')
    expect(connector.online.sort()).toEqual(['a.site.test', 'b.site.test', 'd.site.test'])
    expect(await found()).toEqual([
      'a.site.test localhost:1',
      'b.site.test localhost:2',
      'd.site.test localhost:1',
    ])
  })

  it('is on disk as a whole before the service hears of any of it', async () => {
    const { agent, connector, found } = await started()
    await agent.create(specOf('a'))
    await agent.create(specOf('b'))
    const asking = gate()
    let asked = 0
    connector.onOpen = () => {
      asked += 1
      return asking.wait()
    }
    connector.onClose = asking.wait
    const replaced = agent.replaceAll([specOf('b', 'localhost:2'), specOf('c')])
    await eventually(() => expect(asked).toBeGreaterThan(0))
    expect(await found()).toEqual(['b.site.test localhost:2', 'c.site.test localhost:1'])
    asking.open()
    await replaced
  })

  it('changes nothing at all when its one write fails', async () => {
    const { agent, connector, folder, found } = await started()
    await agent.create(specOf('a'))
    await agent.create(specOf('b'))
    connector.journal.length = 0
    const file = new Sqlite(join(folder, 'agent.db'))
    file.exec(`CREATE TRIGGER refuse BEFORE INSERT ON tunnels WHEN NEW.domain = 'd.site.test'
      BEGIN SELECT RAISE(ABORT, 'no'); END`)
    file.close()
    const wanted = [specOf('b', 'localhost:2'), specOf('c'), specOf('d')]
    await expect(agent.replaceAll(wanted)).rejects.toThrow()
    expect(domains(agent)).toEqual(['a.site.test', 'b.site.test'])
    expect(connector.journal).toEqual([])
    expect(await found()).toEqual(['a.site.test localhost:1', 'b.site.test localhost:1'])
  })

  it('says in a dry run what it would do, and does nothing', async () => {
    const { agent, connector, found } = await started()
    await agent.create(specOf('a'))
    await agent.create(specOf('b'))
    connector.journal.length = 0
    const wanted = [specOf('b', 'localhost:2'), specOf('c')]
    const outcomes = await agent.replaceAll(wanted, { isDryRun: true })
    expect(outcomes.map(({ step, tunnel }) => [step.action, tunnel?.spec.forwardsTo])).toEqual([
      ['replace', 'localhost:1'],
      ['create', undefined],
      ['delete', 'localhost:1'],
    ])
    expect([domains(agent), connector.journal]).toEqual([['a.site.test', 'b.site.test'], []])
    expect(await found()).toEqual(['a.site.test localhost:1', 'b.site.test localhost:1'])
  })

  it('keeps what the gateway refuses, shows it, and tries it again when it is asked for again', async () => {
    const { agent, connector, found } = await started()
    await agent.create(specOf('b'))
    connector.onOpen = ({ domain, forwardsTo }) => {
      if (domain === 'c.site.test' || forwardsTo === 'localhost:2') throw refusal(316)
    }
    const wanted = [specOf('b', 'localhost:2'), specOf('c'), specOf('d')]
    const outcomes = await agent.replaceAll(wanted)
    expect(outcomes.map(({ tunnel }) => [tunnel?.status.state, tunnel?.status.reason])).toEqual([
      // As it was before: it goes on serving beside the refusal.
      ['online', 'acl'],
      ['refused', 'acl'],
      ['online', undefined],
    ])
    expect(outcomes.map(({ isInForce }) => isInForce)).toEqual([false, false, true])
    expect(connector.last.endpoints.get('b.site.test')?.forwardsTo).toBe('localhost:1')
    expect(await found()).toEqual([
      'b.site.test localhost:2',
      'c.site.test localhost:1',
      'd.site.test localhost:1',
    ])
    connector.onOpen = () => {}
    const again = await agent.replaceAll(wanted)
    expect(again.map(({ step, tunnel }) => [step.action, tunnel?.status.state])).toEqual([
      ['keep', 'online'],
      ['keep', 'online'],
      ['keep', 'online'],
    ])
    expect(connector.last.endpoints.get('b.site.test')?.forwardsTo).toBe('localhost:2')
  })

  it('keeps all while the link is down, and opens it when that is back', async () => {
    const { agent, connector } = await started()
    await agent.create(specOf('a'))
    const away = gate()
    connector.onConnect = away.wait
    connector.last.lose()
    await eventually(() => expect(agent.status().link.state).not.toBe('up'))
    const outcomes = await agent.replaceAll([specOf('a', 'localhost:2'), specOf('b')])
    expect(outcomes.map(({ tunnel }) => tunnel?.status.state)).toEqual(['waiting', 'waiting'])
    away.open()
    await eventually(() => expect(connector.online.sort()).toEqual(['a.site.test', 'b.site.test']))
    expect(connector.last.endpoints.get('a.site.test')?.forwardsTo).toBe('localhost:2')
  })

  it('refuses all for what the device refuses of one, and says which', async () => {
    const { agent, connector } = await started()
    await agent.create(specOf('a'))
    connector.journal.length = 0
    const policy = { on_the_moon: [] }
    const wanted = [
      specOf('b'),
      { ...specOf('c'), policy },
      specOf('d', 'localhost:7040'),
      { ...specOf('e'), policy },
    ]
    const error = await agent.replaceAll(wanted).catch((reason) => reason)
    expect(error).toMatchObject({ code: 'policy-invalid' })
    expect(error.errors.map(({ pointer }: { pointer: string }) => pointer)).toEqual([
      '/1/policy/on_the_moon',
      '/2/forwards_to',
      '/3/policy/on_the_moon',
    ])
    expect([domains(agent), connector.journal]).toEqual([['a.site.test'], []])
  })

  it('does not judge again what stays as it is', async () => {
    const { agent, connector, again } = await started({
      forward: { allow: ['192.0.2.1'], ownAddresses: () => [] },
    })
    await agent.create(specOf('a', '192.0.2.1:80'))
    await agent.stop()
    const next = again({ forward: { allow: [], ownAddresses: () => [] } })
    await next.start()
    await linkUp(next)
    const outcomes = await next.replaceAll([specOf('a', '192.0.2.1:80'), specOf('b')])
    expect(outcomes.map(({ step }) => step.action)).toEqual(['keep', 'create'])
    expect(connector.online).toEqual(['b.site.test'])
  })

  it('looks at what there is right before it changes that', async () => {
    const { agent } = await started()
    await agent.create(specOf('a'))
    const changing = agent.replace('a.site.test', specOf('a', 'localhost:2'))
    const seen: string[] = []
    const replaced = agent.replaceAll([], {
      when: (present) => {
        seen.push(...present.map(({ spec }) => spec.forwardsTo))
        throw new AppError('precondition-failed', 'not as it was')
      },
    })
    expect(await codeOf(replaced)).toBe('precondition-failed')
    await changing
    expect(seen).toEqual(['localhost:2'])
    expect(domains(agent)).toEqual(['a.site.test'])
  })

  it('lets two lists at the same moment win one after the other, and never a mixture', async () => {
    const { agent, found } = await started()
    const [first, second] = [
      [specOf('a'), specOf('b')],
      [specOf('b', 'localhost:2'), specOf('c')],
    ]
    await Promise.all([
      agent.replaceAll(first),
      agent.create(specOf('z')).catch(() => {}),
      agent.replaceAll(second),
      agent.remove('b').catch(() => {}),
    ])
    await agent.replaceAll(second)
    const rows = ['b.site.test localhost:2', 'c.site.test localhost:1']
    expect((await found()).sort()).toEqual(rows)
  })

  it('takes back nothing of an earlier replacement that it replaces itself', async () => {
    const { agent, connector, folder, found } = await started()
    await agent.create(specOf('a'))
    const file = new Sqlite(join(folder, 'agent.db'))
    connector.onOpen = ({ forwardsTo }) => {
      if (forwardsTo !== 'localhost:2') return
      file.exec('BEGIN IMMEDIATE')
      throw refusal(9026, 'bad policy')
    }
    // Its row cannot be put back: what was before stands beside it.
    await codeOf(agent.replace('a.site.test', specOf('a', 'localhost:2')))
    file.exec('ROLLBACK')
    file.close()
    await agent.replaceAll([specOf('a', 'localhost:3')])
    expect(await found()).toEqual(['a.site.test localhost:3'])
  })

  it('opens nothing more once it is stopping', async () => {
    const { agent } = await started()
    await agent.stop()
    expect(await codeOf(agent.replaceAll([specOf('a')]))).toBe('shutting-down')
  })
})
