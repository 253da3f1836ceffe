import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { served } from '../../../../src/gateway/certificates/certificate-file.ts'
import { LINK_SLOTS } from '../../../../src/gateway/cluster/peers/peer-protocol.ts'
import { PeerStreams } from '../../../../src/gateway/ingress/device/peer-streams.ts'
import { VISITOR_STREAM_TYPE } from '../../../../src/gateway/streams/visitor-facts.ts'
import { ErrorCode } from '../../../../src/muxado/error-code.ts'
import { openTyped } from '../../../../src/muxado/session.ts'
import { DEAF } from '../../../../src/muxado/stream.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { HOME, putNodeBefore } from '../../../helpers/hop-site.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { RawClient, startRawService } from '../../../helpers/raw-http.ts'
import { Asker, leaveIdle, startSlots } from '../../../helpers/slots-rig.ts'
import { createTlsFixture } from '../../../helpers/tls-fixture.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const get = (path = '/') => `GET ${path} HTTP/1.1\r\nHost: a.test\r\n\r\n`
const FACTS = Buffer.from('facts')

/** A node whose link to a home has so many slots left; the service says nothing to `/slow`. */
async function startFullLink(free: number) {
  const service = await startRawService((socket) => {
    socket.on('data', (chunk) => {
      if (!chunk.toString('latin1').startsWith('GET /slow')) socket.write(OK)
    })
  })
  const site = await startIngressSite({ service })
  const certificate = served(await createTlsFixture())
  const linkClock = new ManualClock(systemClock.now())
  const { addresses, links } = await putNodeBefore(site, {
    tls: { served: () => certificate },
    log: captureLog().log,
    clock: systemClock,
    linkClock,
  })
  const link = links.find(HOME)
  const { session, slots } = link ?? {}
  if (!session || !slots) throw new Error('there is no link')
  const open = () => openTyped(session, VISITOR_STREAM_TYPE, DEAF)
  const taken = Array.from({ length: session.freeSlots - free }, open)
  expect(session.freeSlots).toBe(free)
  /** A visitor with an address of its own. */
  const visit = (path?: string, localAddress = '127.0.0.1') => {
    const { host, port } = addresses.http
    const client = new RawClient(connect({ host, port, localAddress }))
    client.send(get(path))
    return client
  }
  return { session, slots, linkClock, taken, visit }
}

describe('visitors of a link that is full', () => {
  it('get the places of those that are idle', async () => {
    const { session, visit } = await startFullLink(20)
    const clients: RawClient[] = []
    for (let at = 0; at < 25; at += 1) {
      const client = visit()
      clients.push(client)
      expect(await client.receive('\r\n\r\nok')).toContain('200 OK')
    }
    expect(session.freeSlots).toBe(0)
    const other = visit('/', '127.0.0.2')
    expect(await other.receive('\r\n\r\nok')).toContain('200 OK')
    // Who has lost its place asks on the connection that it has.
    const [first] = clients
    first?.send(get())
    await eventually(() => expect(first?.text.match(/200 OK/g)).toHaveLength(2))
  })

  it('have a share of it by their network, whatever the requests of another one', async () => {
    const { session, slots, visit } = await startFullLink(100)
    const greedy = Array.from({ length: 120 }, () => visit('/slow'))
    await eventually(() => expect(slots.waiting).toBeGreaterThan(0))
    await eventually(() => expect(slots.inUse + slots.waiting).toBe(greedy.length))
    expect(session.freeSlots).toBe(Math.floor(slots.reserved / 2))
    const other = visit('/', '127.0.0.2')
    expect(await other.receive('\r\n\r\nok')).toContain('200 OK')
  })

  it('wait for a place', async () => {
    const { slots, taken, linkClock, visit } = await startFullLink(0)
    const client = visit()
    await eventually(() => expect(slots.waiting).toBe(1))
    taken[0]?.reset(ErrorCode.streamCancelled)
    await linkClock.advance(500)
    expect(await client.receive('\r\n\r\nok')).toContain('200 OK')
  })

  it('wait no longer when they have gone', async () => {
    const { slots, visit } = await startFullLink(0)
    const client = visit()
    await eventually(() => expect(slots.waiting).toBe(1))
    client.socket.destroy()
    await eventually(() => expect(slots.waiting).toBe(0))
  })

  it('are told that it is the link, and when to come again', async () => {
    const { slots, linkClock, visit } = await startFullLink(0)
    const client = visit()
    await eventually(() => expect(slots.waiting).toBe(1))
    await linkClock.advance(2_000)
    const answer = await client.receive('ERR_GATEWAY_LINK_FULL)\n')
    expect(answer).toMatch(
      /^HTTP\/1\.1 503 .*retry-after: 1\r\n.*The connection between two gateways is at its limit/s,
    )
  })
})

describe('the idle streams of a visitor', () => {
  it('go after a while', async () => {
    const { slots, session, clock } = await startSlots({ limits: LINK_SLOTS })
    const { freeSlots } = session
    const streams = new PeerStreams(slots, FACTS)
    leaveIdle(streams, 3)
    await clock.advance(9_000)
    expect(session.freeSlots).toBe(freeSlots - 3)
    await clock.advance(1_500)
    expect(session.freeSlots).toBe(freeSlots)
  })

  it('are its own: another one gets a stream with its facts in front', async () => {
    const { slots, session } = await startSlots({ limits: LINK_SLOTS })
    const { freeSlots } = session
    leaveIdle(new PeerStreams(slots, FACTS), 1)
    const asker = new Asker(new PeerStreams(slots, FACTS), '192.0.2.9').ask()
    expect(asker.stream?.isReused).toBe(false)
    expect(session.freeSlots).toBe(freeSlots - 2)
  })

  it('go with it, also those that are busy still', async () => {
    const { slots, session } = await startSlots({ limits: LINK_SLOTS })
    const { freeSlots } = session
    const streams = new PeerStreams(slots, FACTS)
    leaveIdle(streams, 2)
    const busy = new Asker(streams, '192.0.2.9').askFresh()
    streams.close()
    expect(session.freeSlots).toBe(freeSlots - 1)
    busy.stream?.release()
    expect([session.freeSlots, slots.inUse, slots.available]).toEqual([freeSlots, 0, freeSlots])
  })
})
