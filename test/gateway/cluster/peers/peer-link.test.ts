import { once } from 'node:events'
import { connect } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type PeerIdentity,
  tlsOptions,
} from '../../../../src/gateway/cluster/peers/peer-identity.ts'
import { nextPeerLinkState } from '../../../../src/gateway/cluster/peers/peer-link.ts'
import {
  GREETING_STREAM_TYPE,
  LINK_LIMITS,
  QUESTION_STREAM_TYPE,
} from '../../../../src/gateway/cluster/peers/peer-protocol.ts'
import { VISITOR_STREAM_TYPE } from '../../../../src/gateway/streams/visitor-facts.ts'
import { MuxadoError } from '../../../../src/muxado/error-code.ts'
import { HEARTBEAT_STREAM_TYPE } from '../../../../src/muxado/heartbeat.ts'
import { openTyped, Session } from '../../../../src/muxado/session.ts'
import { DEAF, type Stream } from '../../../../src/muxado/stream.ts'
import { ChaosProxy } from '../../../helpers/chaos-proxy.ts'
import {
  createCluster,
  type ListeningNode,
  openLinks,
  PORTS,
  startListener,
  type TestCluster,
} from '../../../helpers/cluster.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

/** A node that listens behind a proxy, and one with a link to it. */
async function startPair(clock?: ManualClock, cluster?: TestCluster) {
  const both = cluster ?? (await createCluster())
  const visitors: Stream[] = []
  const home = await startListener(both, 'nd_home', {
    onVisitor: (stream, { nodeId }) => {
      visitors.push(stream)
      stream.handler = { ...DEAF, onData: () => stream.write(Buffer.from(nodeId)) }
    },
    onQuestion: async () => ({ heard: true }),
  })
  const proxy = await ChaosProxy.start(home.address)
  const first = openLinks(await both.identify('nd_first'), clock ? { clock } : {})
  first.links.follow([{ id: 'nd_home', address: proxy.address }])
  const link = () => {
    const found = first.links.find('nd_home')
    if (!found) throw new Error('no link')
    return found
  }
  const isUp = () => eventually(() => expect(link().state.name).toBe('up'))
  return { cluster: both, home, proxy, first, link, isUp, visitors }
}

function send(session: Session | undefined, type = VISITOR_STREAM_TYPE): Promise<string> {
  return new Promise((resolve, reject) => {
    if (!session) throw new Error('no session')
    const handler = {
      ...DEAF,
      onData: (chunk: Buffer) => resolve(chunk.toString()),
      onClose: reject,
    }
    openTyped(session, type, handler, Buffer.from('{}'))
  })
}

describe('a link', () => {
  it('carries streams, and each side knows which node the other is', async () => {
    const { link, isUp, home, first } = await startPair()
    await isUp()
    expect(home.listener.nodeIds).toEqual(['nd_first'])
    expect(await send(link().session)).toBe('nd_first')
    expect(first.changes).toEqual(['nd_home'])
    await eventually(() => expect(link().latencyMs).toBeGreaterThan(0))
  })

  it('comes back when it was cut', async () => {
    const { link, isUp, proxy } = await startPair()
    await isUp()
    const before = link().session
    proxy.cut()
    await eventually(() => expect(link().session).not.toBe(before))
    await isUp()
    expect(await send(link().session)).toBe('nd_first')
  })

  it('is tried on and on, and says once for each reason why it is not there', async () => {
    const { isUp, proxy, first } = await startPair()
    const tries = () => first.captured.lines.filter(({ msg }) => msg === 'link to node is down')
    await isUp()
    await proxy.stop()
    await eventually(() => expect(tries().length).toBeGreaterThan(4))
    const [, refused] = tries()
    const told = tries().filter(
      ({ reason, level }) => reason === refused?.reason && level === 'warn',
    )
    expect(told).toHaveLength(1)
  })

  it('is given up, with its streams, when the other node does not answer for 3 s', async () => {
    const clock = new ManualClock()
    const { link, isUp, proxy } = await startPair(clock)
    await isUp()
    await eventually(() => expect(link().latencyMs).toBeDefined())
    proxy.blackHole('both')
    const broken = send(link().session).catch((error) => error)
    await clock.advance(1_000)
    expect(link().state.name).toBe('up')
    await clock.advance(2_000)
    expect(await broken).toMatchObject({ reason: 'gone-away' })
    await eventually(() => expect(link().state).toMatchObject({ name: 'down' }))
    // Nobody has that latency any more.
    expect(link().latencyMs).toBeUndefined()
  })

  it('is let go by the other side when no beat comes any more', async () => {
    const clock = new ManualClock(Date.now())
    const cluster = await createCluster(clock)
    const { home, isUp, proxy } = await startPair(undefined, cluster)
    await isUp()
    proxy.blackHole('both')
    await clock.advance(5_000)
    await eventually(() => expect(home.listener.nodeIds).toEqual([]))
    expect(home.captured.text()).toContain('no heartbeat from a node')
  })

  it('does not come about with a node of another cluster', async () => {
    const [{ home }, cluster] = [await startPair(), await createCluster()]
    const { links } = openLinks(await cluster.identify('nd_first'))
    links.follow([{ id: 'nd_home', address: home.address }])
    await eventually(() => expect(links.find('nd_home')?.state.name).toBe('down'))
    expect(links.find('nd_home')?.session).toBeUndefined()
  })

  it('does not come about with another node of the cluster at its address', async () => {
    const { cluster, home } = await startPair()
    const { links } = openLinks(await cluster.identify('nd_first'))
    links.follow([{ id: 'nd_other', address: home.address }])
    await eventually(() =>
      expect(links.find('nd_other')?.state).toMatchObject({
        name: 'down',
        reason: 'another node answered at this address',
      }),
    )
  })

  it('does not come about when the public ports differ, and says so', async () => {
    const { cluster, home } = await startPair()
    const ports = { ...PORTS, http: 80 }
    const { links } = openLinks(await cluster.identify('nd_third'), { ports })
    links.follow([{ id: 'nd_home', address: home.address }])
    await eventually(() =>
      expect(links.find('nd_home')?.state).toMatchObject({ name: 'down', refusal: 'ports' }),
    )
  })

  it('does not come about with a node that was forgotten, and says so at both ends', async () => {
    const cluster = await createCluster()
    const known = new Set(['nd_first'])
    const visitors: string[] = []
    const home = await startListener(cluster, 'nd_home', {
      isKnown: (id) => {
        home.listener.keep((it) => known.has(it))
        return known.has(id)
      },
      onVisitor: (stream, { nodeId }) => {
        visitors.push(nodeId)
        stream.handler = { ...DEAF, onData: () => stream.write(Buffer.from(nodeId)) }
      },
    })
    const { links, captured } = openLinks(await cluster.identify('nd_first'))
    links.follow([{ id: 'nd_home', address: home.address }])
    const link = () => links.find('nd_home')
    await eventually(() => expect(link()?.state.name).toBe('up'))
    expect(await send(link()?.session)).toBe('nd_first')
    known.clear()
    home.listener.keep((id) => known.has(id))
    await eventually(() =>
      expect(link()?.state).toMatchObject({ name: 'down', refusal: 'stranger' }),
    )
    expect(captured.text()).toContain('The node was removed from the cluster')
    const refused = home.captured.lines.filter(({ refusal }) => refusal === 'stranger')
    expect(refused.map(({ msg, node }) => [msg, node])).toEqual([
      ['node disconnected', 'nd_first'],
      ['node refused', 'nd_first'],
    ])
    expect(visitors).toEqual(['nd_first'])
    // Looking again cuts nobody off who is to hear why.
    home.listener.keep((id) => known.has(id))
    expect(home.captured.lines.filter(({ msg }) => msg === 'node disconnected')).toHaveLength(1)
  })

  it('says at once that it is full, and stays', async () => {
    const { link, isUp, visitors } = await startPair()
    await isUp()
    const { session } = link()
    if (!session) throw new Error('no session')
    const opened = session.freeSlots
    for (let count = 0; count < opened; count += 1) openTyped(session, VISITOR_STREAM_TYPE, DEAF)
    expect(() => openTyped(session, VISITOR_STREAM_TYPE, DEAF)).toThrow(MuxadoError)
    await eventually(() => expect(visitors.length).toBe(opened))
    expect(opened).toBe(LINK_LIMITS.openStreams)
    visitors[0]?.reset(0)
    expect(await eventually(() => send(session))).toBe('nd_first')
  })

  it('is closed for good', async () => {
    const { link, isUp, first } = await startPair()
    await isUp()
    const closed = link()
    first.links.follow([])
    expect(first.links.find('nd_home')).toBeUndefined()
    await eventually(() => expect(closed.state.name).toBe('closed'))
    await closed.close()
  })

  it('stays when nodes are told of that it knows, and is replaced at another address', async () => {
    const { cluster, link, isUp, first, home } = await startPair()
    await isUp()
    const before = link()
    first.links.follow([
      { id: 'nd_home', address: before.address },
      { id: 'nd_first', address: before.address },
    ])
    expect([...first.links.all()]).toEqual([before])
    first.links.follow([{ id: 'nd_home', address: home.address }])
    expect(link()).not.toBe(before)
    await isUp()
    expect(cluster.authority.fingerprint).toHaveLength(64)
  })
})

describe('who has not greeted', () => {
  /** Links of a node that beat, and never greet. */
  async function openSilent(home: ListeningNode, identity: PeerIdentity, count: number) {
    const options = {
      ...{ ...home.address, ...tlsOptions(identity), checkServerIdentity: () => undefined },
      ALPNProtocols: ['device-agent-peer'],
    }
    const open = async () => {
      const socket = connect(options).on('error', () => {})
      onTestFinished(() => void socket.destroy())
      await once(socket, 'secureConnect')
      const frames: string[] = []
      const session = new Session(socket, {
        ...{ role: 'client', accept: () => {} },
        trace: (line) => line.startsWith('received') && frames.push(line),
      })
      let echoes = 0
      const onData = () => {
        echoes += 1
      }
      const handler = { ...DEAF, onData }
      const stream = openTyped(session, HEARTBEAT_STREAM_TYPE, handler, Buffer.from('beat'))
      const beat = async () => {
        const before = echoes
        stream.write(Buffer.from('beat'))
        await eventually(() => expect(echoes).toBeGreaterThan(before))
      }
      return { session, closed: session.closed, frames, beat }
    }
    return Promise.all(Array.from({ length: count }, open))
  }
  const startHome = async () => {
    const clock = new ManualClock(Date.now())
    const cluster = await createCluster(clock)
    const home = await startListener(cluster, 'nd_home', { isKnown: (id) => id === 'nd_good' })
    return { clock, cluster, home }
  }

  it('is let go when it has not greeted for as long as a greeting takes', async () => {
    const { clock, cluster, home } = await startHome()
    const [silent] = await openSilent(home, await cluster.identify('nd_forgotten'), 1)
    await eventually(() => expect(home.listener.nodeIds).toEqual(['nd_forgotten']))
    await clock.advance(4_900)
    await silent?.beat()
    expect(home.listener.nodeIds).toEqual(['nd_forgotten'])
    await clock.advance(100)
    await eventually(() => expect(home.listener.nodeIds).toEqual([]))
    await silent?.closed
  })

  it('hears nothing while there is nothing to say', async () => {
    const { cluster, home } = await startHome()
    const [node] = await openSilent(home, await cluster.identify('nd_good'), 1)
    if (!node) throw new Error('there is no link')
    await node.beat()
    openTyped(node.session, GREETING_STREAM_TYPE, DEAF, Buffer.from('{'))
    await turns()
    await node.beat()
    expect(node.frames.join('\n')).not.toContain('WNDINC')
  })

  it('has three links at most, of which those go first that never greeted', async () => {
    const { cluster, home } = await startHome()
    const good = openLinks(await cluster.identify('nd_good'))
    good.links.follow([{ id: 'nd_home', address: home.address }])
    const link = () => good.links.find('nd_home')
    await eventually(() => expect(link()?.state.name).toBe('up'))
    const before = link()?.session
    await openSilent(home, await cluster.identify('nd_good'), 8)
    await eventually(() => expect(home.listener.nodeIds).toHaveLength(3))
    expect(link()?.session).toBe(before)
    expect(link()?.state.name).toBe('up')
  })

  it('keeps no node from its place, however many of its links there are', async () => {
    const { cluster, home } = await startHome()
    for (let n = 0; n < 90; n += 1) {
      await openSilent(home, await cluster.identify(`nd_forgotten${n}`), 3)
    }
    expect(home.listener.nodeIds.length).toBeGreaterThan(200)
    await eventually(() => expect(home.listener.nodeIds.length).toBeLessThanOrEqual(256))
    const good = openLinks(await cluster.identify('nd_good'))
    good.links.follow([{ id: 'nd_home', address: home.address }])
    await eventually(() => expect(good.links.find('nd_home')?.state.name).toBe('up'))
  })

  it('is not served before it has greeted', async () => {
    const { cluster, home, visitors } = await startPair()
    const identity = await cluster.identify('nd_rude')
    const socket = connect({
      ...home.address,
      ...tlsOptions(identity),
      checkServerIdentity: () => undefined,
      ALPNProtocols: ['device-agent-peer'],
    })
    await once(socket, 'secureConnect')
    const session = new Session(socket, { role: 'client', accept: () => {} })
    onTestFinished(() => void socket.destroy())
    await expect(send(session)).rejects.toMatchObject({ reason: 'stream-reset' })
    for (const type of [QUESTION_STREAM_TYPE, 7]) {
      await expect(send(session, type)).rejects.toMatchObject({ reason: 'stream-reset' })
    }
    expect(visitors).toEqual([])
    // What is no greeting ends the link.
    openTyped(session, GREETING_STREAM_TYPE, DEAF, Buffer.from('{"versions": 1}'))
    await expect(session.closed).resolves.toMatchObject({ reason: 'remote-gone-away' })
  })

  it.each([
    [{ oldest: 2, newest: 3 }, { refusal: 'version' }],
    [{ oldest: 1, newest: 9 }, { version: 1 }],
  ])('agrees on a version with one that speaks %o', async (versions, welcome) => {
    const { agree, SPOKEN } = await import('../../../../src/gateway/cluster/peers/greeting.ts')
    expect(agree({ versions: SPOKEN, ports: PORTS }, { versions, ports: PORTS })).toEqual(welcome)
  })
})

it('cannot be up again without connecting', () => {
  expect(() => nextPeerLinkState({ name: 'closed' }, { name: 'connecting' })).toThrow('closed')
})
