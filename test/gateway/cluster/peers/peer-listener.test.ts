import { connect as connectTcp } from 'node:net'
import { connect } from 'node:tls'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { requestFor } from '../../../../src/gateway/cluster/peers/cluster-authority.ts'
import { tlsOptions } from '../../../../src/gateway/cluster/peers/peer-identity.ts'
import { GREETING_STREAM_TYPE } from '../../../../src/gateway/cluster/peers/peer-protocol.ts'
import { openTyped, Session } from '../../../../src/muxado/session.ts'
import { DEAF } from '../../../../src/muxado/stream.ts'
import {
  createCluster,
  openLinks,
  PORTS,
  startListener,
  type TestCluster,
} from '../../../helpers/cluster.ts'
import { eventually } from '../../../helpers/eventually.ts'

const PEER = 'device-agent-peer'
/** Of what answered those without a certificate once. */
const JOIN = 'device-agent-join'
const YEAR_MS = 365 * 86_400_000
const GREETING = { versions: { oldest: 1, newest: 1 }, ports: PORTS }

type Shows = 'nothing' | 'node' | 'foreign' | 'expired'

async function shown(cluster: TestCluster, what: Shows) {
  if (what === 'nothing') return {}
  const another = what === 'foreign' ? await createCluster() : cluster
  const identity = await another.identify('nd_x')
  if (what !== 'expired') return tlsOptions(identity)
  const request = await requestFor(identity.keyPem)
  const certPem = await cluster.authority.issue('nd_x', request, Date.now() - 2 * YEAR_MS)
  return tlsOptions({ ...identity, certPem })
}

async function startDoor() {
  const cluster = await createCluster()
  const isKnown = vi.fn(() => true)
  const home = await startListener(cluster, 'nd_home', { isKnown })
  /** Greets without waiting for anything; gives all bytes that come back before the end. */
  const knock = async (what: Shows, protocol: string | undefined) => {
    const socket = connect({
      ...home.address,
      ...(await shown(cluster, what)),
      ca: cluster.authority.certPem,
      checkServerIdentity: () => undefined,
      ...(protocol !== undefined && { ALPNProtocols: [protocol] }),
    })
    onTestFinished(() => void socket.destroy())
    let bytes = 0
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length
    })
    socket.on('error', () => {})
    const closed = new Promise((resolve) => socket.once('close', resolve))
    const session = new Session(socket, { role: 'client', accept: () => {} })
    openTyped(session, GREETING_STREAM_TYPE, DEAF, Buffer.from(JSON.stringify(GREETING)))
    await closed
    return bytes
  }
  const isLinked = async () => {
    const good = openLinks(await cluster.identify('nd_good'))
    good.links.follow([{ id: 'nd_home', address: home.address }])
    await eventually(() => expect(good.links.find('nd_home')?.state.name).toBe('up'))
  }
  return { cluster, home, isKnown, knock, isLinked }
}

describe('who comes to the peer port', () => {
  it.each<[string, Shows, string, string]>([
    ['no certificate', 'nothing', PEER, 'peer did not return a certificate'],
    ['a certificate of another cluster', 'foreign', PEER, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    ['a certificate that has expired', 'expired', PEER, 'CERT_HAS_EXPIRED'],
    ['no certificate, and wants to join', 'nothing', JOIN, 'no application protocol'],
    ['a certificate of the cluster, and wants to join', 'node', JOIN, 'no application protocol'],
  ])('with %s is refused by TLS', async (_what, shows, protocol, reason) => {
    const { home, knock, isKnown, isLinked } = await startDoor()
    expect(await knock(shows, protocol)).toBe(0)
    await eventually(() => expect(home.captured.lines).toHaveLength(1))
    const [refused] = home.captured.lines
    expect(refused).toMatchObject({ level: 'debug', msg: 'tls handshake failed' })
    expect(refused?.reason).toContain(reason)
    // Nobody has asked PostgreSQL for it.
    expect(isKnown).not.toHaveBeenCalled()
    await isLinked()
    expect(isKnown.mock.calls).toEqual([['nd_good']])
  })

  it('with a certificate of the cluster is cut off unless it says what it speaks', async () => {
    const { home, knock, isKnown } = await startDoor()
    expect(await knock('node', undefined)).toBe(0)
    expect(home.captured.text()).toContain('the client is not a node of the cluster')
    expect(isKnown).not.toHaveBeenCalled()
  })

  it('is refused as before when the node has got another certificate', async () => {
    const { cluster, home, knock, isLinked } = await startDoor()
    home.listener.setIdentity(await cluster.identify('nd_home'))
    expect(await knock('nothing', PEER)).toBe(0)
    await eventually(() => expect(home.captured.text()).toContain('did not return a certificate'))
    await isLinked()
  })

  it('and says nothing keeps no node from its place', async () => {
    const { home, isLinked } = await startDoor()
    for (let n = 0; n < 300; n += 1) {
      const socket = connectTcp(home.address).on('error', () => {})
      onTestFinished(() => void socket.destroy())
    }
    // They give way to those who come later, long before their time is up.
    const gone = () => home.captured.lines.map(({ reason }) => reason)
    await eventually(() => {
      expect(gone().filter((it) => it !== 'TLS handshake timeout')).toHaveLength(300 - 256)
    }, 20_000)
    await isLinked()
  })
})
