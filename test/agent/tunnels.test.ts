import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import type { TunnelSpec } from '../../src/agent/tunnel.ts'
import { AppError } from '../../src/base/app-error.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { FAST_TIMINGS, linkUp, specOf } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { eventually } from '../helpers/eventually.ts'
import { gate, refusal } from '../helpers/fake-connector.ts'

async function started(change: Parameters<typeof agentOnFake>[0] = {}) {
  const on = await agentOnFake(change)
  await on.agent.start()
  await linkUp(on.agent)
  return on
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (reason) => reason,
  )
  expect(error).toBeInstanceOf(AppError)
  return error.code
}

describe('create', () => {
  it('stores the tunnel, opens it and answers when it is online', async () => {
    const { agent, connector } = await started()
    const { tunnel, pending } = await agent.create(specOf('a', 'localhost:8001'))
    expect(pending).toBe(false)
    expect(tunnel).toMatchObject({
      id: expect.stringMatching(/^tun_[0-9a-f]{20}$/),
      spec: specOf('a', 'localhost:8001'),
      url: 'https://a.site.test:8443',
      status: { state: 'online' },
    })
    expect(connector.last.endpoints.get('a.site.test')).toMatchObject({
      dialUrl: 'http://localhost:8001',
      forwardsTo: 'localhost:8001',
      policy: '{"on_http_request":[]}',
    })
    expect(agent.list()).toHaveLength(1)
  })

  it('has the row on disk before the service is asked', async () => {
    const { agent, connector, folder } = await started()
    const opening = gate()
    connector.onOpen = opening.wait
    const created = agent.create(specOf('a'))
    await eventually(() => expect(agent.list()).toHaveLength(1))
    const rows = () => {
      const file = new Sqlite(join(folder, 'agent.db'))
      const read = file.prepare('SELECT domain, removed_at IS NULL AS is_kept FROM tunnels').all()
      file.close()
      return read
    }
    expect(rows()).toEqual([{ domain: 'a.site.test', is_kept: 0 }])
    opening.open()
    await created
    expect(rows()).toEqual([{ domain: 'a.site.test', is_kept: 1 }])
  })

  it.each([
    [316, 'forbidden'],
    [319, 'service-refused'],
    [334, 'domain-online-elsewhere'],
    [9026, 'policy-invalid'],
  ])('answers ERR_NGROK_%i as %s and forgets the tunnel', async (number, code) => {
    const { agent, connector, again } = await started()
    connector.onOpen = () => {
      throw refusal(number, 'the service says no')
    }
    const answer = await agent.create(specOf('a')).catch((error) => error)
    expect(answer).toMatchObject({ code, serviceCode: `ERR_NGROK_${number}` })
    expect(answer.message).toMatch(/^the service says no\. /)
    expect(agent.list()).toEqual([])
    const other = again()
    await other.start()
    expect(other.list()).toEqual([])
    connector.onOpen = () => {}
    expect((await agent.create(specOf('a'))).pending).toBe(false)
  })

  it('is pending while the link is down, and opens when it is back', async () => {
    const { agent, connector } = await started()
    const away = gate()
    connector.onConnect = away.wait
    connector.last.lose()
    await eventually(() => expect(agent.status().link.state).not.toBe('up'))
    const { tunnel, pending } = await agent.create(specOf('a'))
    expect(pending).toBe(true)
    expect(tunnel).toMatchObject({
      url: 'https://a.site.test',
      status: { state: 'waiting', reason: 'network' },
    })
    away.open()
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
  })

  it('is pending when the service does not answer in time', async () => {
    const { agent, connector } = await started({ timings: { ...FAST_TIMINGS, settleMs: 50 } })
    const opening = gate()
    connector.onOpen = opening.wait
    const { pending, tunnel } = await agent.create(specOf('a'))
    expect(pending).toBe(true)
    expect(tunnel.status.state).toBe('opening')
    opening.open()
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
  })

  it('is pending when the service asks to go slower', async () => {
    const { agent, connector } = await started()
    let refusals = 2
    connector.onOpen = () => {
      if (refusals-- > 0) throw refusal(351)
    }
    expect((await agent.create(specOf('a'))).pending).toBe(true)
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
  })

  it('refuses a domain that is taken here, by a tunnel or by the agent itself', async () => {
    const { agent, connector } = await started({
      own: { domain: 'own.site.test', socketPath: '/api.sock' },
    })
    await agent.create(specOf('a'))
    expect(await codeOf(agent.create(specOf('a', 'localhost:2')))).toBe('domain-taken')
    expect(await codeOf(agent.create(specOf('own')))).toBe('domain-taken')
    expect(connector.online.sort()).toEqual(['a.site.test', 'own.site.test'])
  })

  it('makes one of two that come at the same moment', async () => {
    const { agent } = await started()
    const answers = await Promise.allSettled([agent.create(specOf('a')), agent.create(specOf('a'))])
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    expect(agent.list()).toHaveLength(1)
  })

  it('refuses more tunnels than the device may hold', async () => {
    const { agent } = await started({ maxTunnels: 2 })
    const creations = ['a', 'b', 'c', 'd'].map((name) => agent.create(specOf(name)))
    const answers = await Promise.allSettled(creations)
    expect(answers.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
    expect(await codeOf(agent.create(specOf('e')))).toBe('too-many-tunnels')
    await agent.remove('a')
    await agent.create(specOf('e'))
  })

  it('refuses to forward where the device may not, before anything is stored', async () => {
    const { agent, connector } = await started()
    expect(await codeOf(agent.create(specOf('a', '169.254.169.254:80')))).toBe(
      'forwards-to-not-allowed',
    )
    expect(await codeOf(agent.create(specOf('a', 'localhost:7040')))).toBe(
      'forwards-to-not-allowed',
    )
    expect(agent.list()).toEqual([])
    expect(connector.journal).toEqual([])
  })

  it('refuses a policy with each mistake and its place in the request', async () => {
    const { agent, connector } = await started()
    const policy = { on_the_moon: [], on_http_request: [{ actions: [{ type: 'fly' }] }] }
    const error = await agent.create({ ...specOf('a'), policy }).catch((reason) => reason)
    expect(error).toMatchObject({
      code: 'policy-invalid',
      errors: expect.arrayContaining([
        expect.objectContaining({ pointer: '/policy/on_the_moon' }),
        expect.objectContaining({ pointer: '/policy/on_http_request/0/actions/0/type' }),
      ]),
    })
    expect(error.message).toBe(error.errors[0].detail)
    expect(connector.journal).toEqual([])
  })

  it('logs what becomes of a tunnel under its id and its domain', async () => {
    const { agent, captured } = await started()
    const { tunnel } = await agent.create(specOf('a'))
    expect(captured.lines).toContainEqual(
      expect.objectContaining({
        msg: 'tunnel online',
        tunnel: tunnel.id,
        domain: 'a.site.test',
        url: tunnel.url,
      }),
    )
  })

  it('opens nothing more once it is stopping', async () => {
    const { agent } = await started()
    await agent.stop()
    expect(await codeOf(agent.create(specOf('a')))).toBe('shutting-down')
  })
})

describe('find', () => {
  it('takes the id, the full host, or a first label that only one tunnel has', async () => {
    const { agent } = await started()
    const { tunnel } = await agent.create(specOf('a'))
    await agent.create(specOf('front'))
    await agent.create({ ...specOf('plc'), protocol: 'tls' })
    expect(agent.find('plc').spec.domain).toBe('plc.site.test')
    await agent.create({ ...specOf('b'), protocol: 'tcp', domain: 'gateway.test:20017' })
    expect(() => agent.find('gateway')).toThrow('No tunnel matches gateway.')
    await agent.create({ ...specOf('b'), domain: 'b.one.test' })
    await agent.create({ ...specOf('b'), domain: 'b.two.test' })
    expect(agent.find('front').spec.domain).toBe('front.site.test')
    for (const name of [tunnel.id, 'a.site.test', 'A.Site.Test', 'a']) {
      expect(agent.find(name).id).toBe(tunnel.id)
    }
    expect(agent.find('b.two.test').spec.domain).toBe('b.two.test')
    expect(() => agent.find('b')).toThrow(
      expect.objectContaining({
        code: 'ambiguous-tunnel',
        message: 'b matches several tunnels: b.one.test, b.two.test.',
      }),
    )
  })

  it.each([
    '',
    'site',
    'site.test',
    'test',
    'http',
    'tun_',
    'https://a.site.test',
    'a.site.test:8443',
  ])('never takes a part of a name: %j', async (name) => {
    const { agent } = await started()
    await agent.create(specOf('a'))
    expect(() => agent.find(name)).toThrow(`No tunnel matches ${name}.`)
  })
})

describe('remove', () => {
  it('closes the endpoint at the service, then forgets the tunnel', async () => {
    const { agent, connector, again } = await started()
    await agent.create(specOf('a'))
    await agent.create(specOf('b'))
    await agent.remove('a')
    expect(connector.online).toEqual(['b.site.test'])
    expect(await codeOf(agent.remove('a'))).toBe('tunnel-not-found')
    const other = again()
    await other.start()
    expect(other.list().map(({ spec }) => spec.domain)).toEqual(['b.site.test'])
  })

  it('has said no on disk before it asks the service', async () => {
    const { agent, connector, again } = await started()
    await agent.create(specOf('a'))
    const closing = gate()
    connector.onClose = closing.wait
    const removed = agent.remove('a')
    await eventually(() => expect(agent.find('a').status.state).toBe('closing'))
    const other = again()
    await other.start()
    expect(other.list()).toEqual([])
    expect(connector.online).toEqual(['a.site.test'])
    closing.open()
    await removed
    expect(connector.online).toEqual([])
  })

  it('forgets a tunnel while the link is down', async () => {
    const { agent, connector } = await started()
    await agent.create(specOf('a'))
    connector.onConnect = () => new Promise(() => {})
    connector.last.lose()
    await eventually(() => expect(agent.status().link.state).toBe('connecting'))
    await agent.remove('a')
    expect(agent.list()).toEqual([])
  })

  it('answers not found to the second of two at the same moment', async () => {
    const { agent } = await started()
    await agent.create(specOf('a'))
    const answers = await Promise.allSettled([agent.remove('a'), agent.remove('a')])
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
  })
})

describe('a database that takes no changes any more', () => {
  it('brings no tunnel back at the next start that was refused', async () => {
    const { agent, connector, folder, again } = await started()
    connector.onOpen = () => {
      // A database whose file is gone refuses every change, and is written anew as it was.
      rmSync(join(folder, 'agent.db'))
      throw refusal(316)
    }
    expect(await codeOf(agent.create(specOf('a')))).toBe('forbidden')
    expect(agent.list()).toEqual([])
    await agent.stop()
    const next = again()
    await next.start()
    expect(next.list()).toEqual([])
  })

  it('refuses a tunnel that it cannot keep, and closes it', async () => {
    const { agent, connector, folder, again } = await started()
    connector.onOpen = () => rmSync(join(folder, 'agent.db'))
    expect(await codeOf(agent.create(specOf('a')))).toBe('storage-unavailable')
    expect([agent.list(), connector.online]).toEqual([[], []])
    await agent.stop()
    const next = again()
    await next.start()
    expect(next.list()).toEqual([])
  })

  it('keeps no tunnel from being removed whose removal it has taken', async () => {
    const { agent, connector, captured, folder } = await started()
    const { tunnel } = await agent.create(specOf('a'))
    // A database whose file is gone refuses every change; this is after the row was marked.
    connector.onClose = () => rmSync(join(folder, 'agent.db'))
    await agent.remove('a')
    expect(agent.list()).toEqual([])
    expect(captured.lines).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        id: tunnel.id,
        err: expect.objectContaining({ code: 'storage-unavailable' }),
      }),
    )
  })
})

describe('a tunnel whose target is allowed no more', () => {
  it('is refused at the next start, with what to do', async () => {
    const { agent, connector, again } = await started({
      forward: { allow: ['192.0.2.1'], ownAddresses: () => [] },
    })
    await agent.create(specOf('a', '192.0.2.1:80'))
    await agent.stop()
    connector.journal.length = 0
    const next = again({ forward: { allow: [], ownAddresses: () => [] } })
    await next.start()
    await linkUp(next)
    await eventually(() =>
      expect(next.find('a').status).toMatchObject({
        state: 'refused',
        reason: 'upstream',
        remedy: expect.stringContaining('AGENT_FORWARD_ALLOW'),
      }),
    )
    expect(connector.journal).toEqual([])
  })
})

describe('replace', () => {
  it('creates what is not there', async () => {
    const { agent } = await started()
    const { created, pending, tunnel } = await agent.replace('a.site.test', specOf('a'))
    expect([created, pending, tunnel.status.state]).toEqual([true, false, 'online'])
  })

  it('leads to a name by one and the same way, before, meanwhile and after', async () => {
    const service = createServer((socket) => void socket.pipe(socket)).listen(0, '127.0.0.1')
    onTestFinished(() => void service.close())
    await once(service, 'listening')
    const { port } = service.address() as AddressInfo
    const { agent, connector } = await started({
      forward: { allow: ['cam.lan'], ownAddresses: () => [], resolve: async () => ['127.0.0.1'] },
    })
    const spec = specOf('a', `cam.lan:${port}`)
    await agent.create(spec)
    const dialUrl = () => connector.last.endpoints.get('a.site.test')?.dialUrl ?? ''
    const before = dialUrl()
    const opening = gate()
    connector.onOpen = opening.wait
    const replaced = agent.replace('a.site.test', { ...spec, policy: { on_http_response: [] } })
    await eventually(() => expect(agent.find('a').spec.policy).not.toBeNull())
    // What is open still dials where it did.
    const visitor = connect(Number(new URL(before).port), '127.0.0.1')
    onTestFinished(() => void visitor.destroy())
    visitor.write('hello')
    expect(String((await once(visitor, 'data'))[0])).toBe('hello')
    opening.open()
    await replaced
    expect(dialUrl()).toBe(before)
  })

  it('opens the new and closes the old, under the same id', async () => {
    const { agent, connector, again } = await started()
    const { tunnel } = await agent.create(specOf('a'))
    const policy = { on_http_response: [] }
    const { created, tunnel: after } = await agent.replace('a.site.test', {
      ...specOf('a', 'localhost:2'),
      policy,
    })
    expect(created).toBe(false)
    expect(after).toMatchObject({ id: tunnel.id, createdAt: tunnel.createdAt })
    expect(connector.last.endpoints.get('a.site.test')).toMatchObject({
      dialUrl: 'http://localhost:2',
      policy: JSON.stringify(policy),
    })
    expect(connector.journal.slice(0, 3)).toEqual([
      'open a.site.test',
      'open a.site.test',
      'close a.site.test',
    ])
    const other = again()
    await other.start()
    expect(other.list()[0]?.spec).toEqual({ ...specOf('a', 'localhost:2'), policy })
  })

  it('leaves a tunnel alone that is what is asked for', async () => {
    const { agent, connector } = await started()
    const { tunnel } = await agent.create(specOf('a'))
    const { tunnel: same } = await agent.replace('a.site.test', specOf('a'))
    expect(same.updatedAt).toBe(tunnel.updatedAt)
    expect(connector.journal).toEqual(['open a.site.test'])
  })

  it('keeps the old tunnel open when the gateway refuses the new one', async () => {
    const { agent, connector, again } = await started()
    await agent.create(specOf('a'))
    connector.onOpen = ({ forwardsTo }) => {
      if (forwardsTo === 'localhost:2') throw refusal(9026, 'bad policy')
    }
    expect(await codeOf(agent.replace('a.site.test', specOf('a', 'localhost:2')))).toBe(
      'policy-invalid',
    )
    expect(agent.find('a')).toMatchObject({ spec: specOf('a'), status: { state: 'online' } })
    expect(connector.last.endpoints.get('a.site.test')?.forwardsTo).toBe('localhost:1')
    expect(connector.journal).toEqual(['open a.site.test'])
    const other = again()
    await other.start()
    expect(other.list()[0]?.spec).toEqual(specOf('a'))
  })

  it('keeps the old tunnel, over a restart too, when its row cannot be put back', async () => {
    const { agent, connector, folder, again } = await started()
    await agent.create(specOf('a'))
    const file = new Sqlite(join(folder, 'agent.db'))
    onTestFinished(() => void file.close())
    connector.onOpen = ({ forwardsTo }) => {
      if (forwardsTo !== 'localhost:2') return
      file.exec('BEGIN IMMEDIATE')
      throw refusal(9026, 'bad policy')
    }
    const replaced = codeOf(agent.replace('a.site.test', specOf('a', 'localhost:2')))
    expect(await replaced).toBe('policy-invalid')
    file.exec('ROLLBACK')
    expect(agent.find('a')).toMatchObject({ spec: specOf('a'), status: { state: 'online' } })
    expect(connector.last.endpoints.get('a.site.test')?.forwardsTo).toBe('localhost:1')
    const other = again()
    await other.start()
    expect(other.list()[0]?.spec).toEqual(specOf('a'))
    await linkUp(other)
    await other.replace('a.site.test', specOf('a', 'localhost:3'))
    const third = again()
    await third.start()
    expect(third.list()[0]?.spec).toEqual(specOf('a', 'localhost:3'))
  })

  it('tries a refused tunnel again at once', async () => {
    const { agent, connector } = await started()
    await agent.create(specOf('a'))
    connector.onOpen = () => {
      throw refusal(316)
    }
    connector.last.lose()
    await eventually(() => expect(agent.find('a').status.state).toBe('refused'))
    let tries = 0
    connector.onOpen = () => {
      tries += 1
      throw refusal(316)
    }
    expect(await codeOf(agent.replace('a.site.test', specOf('a')))).toBe('forbidden')
    expect(tries).toBe(1)
    connector.onOpen = () => {}
    expect((await agent.replace('a.site.test', specOf('a'))).pending).toBe(false)
  })

  it('refuses what create would, and leaves the tunnel as it is', async () => {
    const { agent, connector } = await started()
    await agent.create(specOf('a'))
    const replaceBy = (spec: TunnelSpec) => codeOf(agent.replace('a.site.test', spec))
    expect(await replaceBy(specOf('a', 'localhost:7040'))).toBe('forwards-to-not-allowed')
    expect(await replaceBy({ ...specOf('a'), policy: { on_the_moon: [] } })).toBe('policy-invalid')
    expect(agent.find('a')).toMatchObject({ spec: specOf('a'), status: { state: 'online' } })
    expect(connector.journal).toEqual(['open a.site.test'])
  })
})

describe('the service behind a tunnel', () => {
  async function startCounter() {
    let connections = 0
    const server = createServer((socket) => {
      connections += 1
      socket.on('error', () => {}).destroy()
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const target = `127.0.0.1:${(server.address() as AddressInfo).port}`
    return { target, connections: () => connections }
  }

  it.each([
    ['is removed', (agent: Agent) => agent.remove('a')],
    ['leads elsewhere', (agent: Agent) => agent.replace('a.site.test', specOf('a'))],
  ])('is not tried any more when the tunnel %s', async (_how, change) => {
    const { agent } = await started()
    const [left, other] = [await startCounter(), await startCounter()]
    await agent.create(specOf('a', left.target))
    await agent.create(specOf('b', other.target))
    const twoRounds = async () => {
      const before = other.connections()
      await eventually(() => expect(other.connections()).toBeGreaterThan(before + 1))
    }
    await eventually(() => expect(left.connections()).toBeGreaterThan(1))
    await change(agent)
    await twoRounds()
    const last = left.connections()
    await twoRounds()
    expect(left.connections()).toBe(last)
  })
})
