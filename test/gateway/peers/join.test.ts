import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { connect, createServer } from 'node:tls'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { joinCluster } from '../../../src/gateway/peers/join.ts'
import { JoinDesk } from '../../../src/gateway/peers/join-desk.ts'
import { isJoinRefusalCode, JOIN_REFUSALS } from '../../../src/gateway/peers/join-refusal.ts'
import { createJoinToken, parseJoinToken } from '../../../src/gateway/peers/join-token.ts'
import {
  JOIN_PROTOCOL,
  keepIdentity,
  readIdentity,
} from '../../../src/gateway/peers/peer-identity.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { createCluster, PORTS, startListener, type TestCluster } from '../../helpers/cluster.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const HOUR_MS = 3_600_000

async function startCluster(cluster?: TestCluster) {
  const clock = new ManualClock(Date.now())
  const joined = cluster ?? (await createCluster(clock))
  const node = await startListener(joined, 'nd_first')
  const attempt = (text: string, ports = PORTS) => {
    const token = parseJoinToken(text)
    if (!token) throw new Error('no token')
    return joinCluster({ address: node.address, token, ports, clock })
  }
  return { cluster: joined, node, attempt, clock }
}

describe('a node that joins', () => {
  it('gets a certificate of the cluster for an id of its own', async () => {
    const { cluster, attempt } = await startCluster()
    const token = await cluster.makeToken()
    const identity = await attempt(token.reveal())
    expect(identity.nodeId).toBe('nd_joined1')
    const folder = temporaryFolder()
    keepIdentity(folder, identity)
    expect(readIdentity(folder)).toEqual(identity)
    expect(statSync(join(folder, 'node.json')).mode & 0o777).toBe(0o600)
    expect([...cluster.material.tokens.values()][0]?.usedBy).toBe('nd_joined1')
  })

  it('is refused with a token that was used, whoever is quicker', async () => {
    const { cluster, attempt } = await startCluster()
    const token = (await cluster.makeToken()).reveal()
    const results = await Promise.allSettled([attempt(token), attempt(token), attempt(token)])
    const codes = results.map((it) => (it.status === 'rejected' ? it.reason.code : 'joined'))
    expect(codes.sort()).toEqual(['join-token-used', 'join-token-used', 'joined'])
  })

  it('is refused with a token that has expired', async () => {
    const { cluster, attempt, clock } = await startCluster()
    const token = (await cluster.makeToken(HOUR_MS)).reveal()
    clock.stepWall(HOUR_MS)
    await expect(attempt(token)).rejects.toMatchObject({ code: 'join-token-expired' })
  })

  it('is refused with a wrong secret, and after some of them for a while', async () => {
    const { cluster, attempt, node } = await startCluster()
    const token = (await cluster.makeToken()).reveal()
    const wrong = token.replace(/_[0-9A-Za-z_-]{43}_/, `_${'x'.repeat(43)}_`)
    const codes: string[] = []
    for (let tries = 0; tries < 12; tries += 1) {
      await attempt(wrong).catch(({ code }) => codes.push(code))
    }
    expect(codes.slice(0, 10)).toEqual(Array(10).fill('join-token-unknown'))
    expect(codes.slice(10)).toEqual(['join-too-often', 'join-too-often'])
    expect(node.captured.text()).not.toContain('xxxx')
    // The right one is good all the same: nobody locks others out.
    await expect(attempt(token)).resolves.toMatchObject({ nodeId: 'nd_joined1' })
    expect(node.captured.text()).not.toContain(parseJoinToken(token)?.secret)
  })

  it('makes the database answer one question at a time when it tries too often', async () => {
    const { cluster } = await startCluster()
    const token = parseJoinToken((await cluster.makeToken()).reveal())
    if (!token) throw new Error('no token')
    let asked = 0
    let most = 0
    const answers: (() => void)[] = []
    const findJoinToken = async (id: string) => {
      asked += 1
      most = Math.max(most, asked)
      await new Promise<void>((resolve) => answers.push(resolve))
      asked -= 1
      return cluster.material.findJoinToken(id)
    }
    const desk = new JoinDesk({
      ...{ ...cluster, material: { ...cluster.material, findJoinToken }, ports: PORTS },
      ...{ newNodeId: () => 'nd_1', log: captureLog().log },
    })
    const request = { token_id: token.id, secret: 'x'.repeat(43), request: '', ports: PORTS }
    const tries = Array.from({ length: 200 }, () => desk.answer(request, '192.0.2.1'))
    let over = false
    void Promise.all(tries).then(() => {
      over = true
    })
    await eventually(() => {
      for (const answer of answers.splice(0)) answer()
      expect(over).toBe(true)
    })
    expect(most).toBe(11)
  })

  it('is refused when its public ports are others', async () => {
    const { cluster, attempt } = await startCluster()
    const token = (await cluster.makeToken()).reveal()
    const refused = attempt(token, { ...PORTS, https: 443 })
    await expect(refused).rejects.toMatchObject({ code: 'join-ports-differ' })
    // The token is as good as before.
    await expect(attempt(token)).resolves.toBeDefined()
  })

  it('sends nothing to a cluster that its token is not for', async () => {
    const [{ cluster }, { attempt, node }] = [await startCluster(), await startCluster()]
    const token = (await cluster.makeToken()).reveal()
    await expect(attempt(token)).rejects.toMatchObject({ code: 'join-cluster-unknown' })
    expect(node.captured.text()).not.toContain('join refused')
  })

  it('keeps the authority that it has checked, whatever it is sent', async () => {
    const [{ cluster, clock }, foreign] = [await startCluster(), await createCluster()]
    const token = parseJoinToken((await cluster.makeToken()).reveal())
    if (!token) throw new Error('no token')
    const [own, another] = await Promise.all(['nd_a', 'nd_b'].map((id) => cluster.identify(id)))
    if (!own || !another) throw new Error('no identity')
    const { authorityPem, ...identity } = own
    const cert = identity.certPem + authorityPem
    const server = createServer({ key: own.keyPem, cert, ALPNProtocols: [JOIN_PROTOCOL] })
    server.on('secureConnection', (socket) => {
      const answer = { node_id: 'nd_b', certificate: another.certPem }
      socket.on('error', () => {})
      socket.end(JSON.stringify({ ...answer, authority: foreign.authority.certPem }))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const address = { host: '127.0.0.1', port: (server.address() as AddressInfo).port }
    const joined = await joinCluster({ address, token, ports: PORTS, clock })
    const { fingerprint256 } = new X509Certificate(joined.authorityPem)
    expect(fingerprint256).toBe(new X509Certificate(authorityPem).fingerprint256)
  })

  it('is cut off when it says too much, or nothing for 10 s', async () => {
    const { node } = await startCluster()
    const open = async () => {
      const options = { ...node.address, rejectUnauthorized: false, ALPNProtocols: [JOIN_PROTOCOL] }
      const socket = connect(options).on('error', () => {})
      onTestFinished(() => void socket.destroy())
      await once(socket, 'secureConnect')
      return socket
    }
    const refusals = () =>
      node.captured.lines
        .filter(({ msg }) => msg === 'no request to join')
        .map(({ err }) => (err as Error).message)
    const loud = await open()
    loud.write(`{"token_id":"${'x'.repeat(8_192)}`)
    await eventually(() => expect(refusals()).toEqual([expect.stringContaining('8192 bytes')]))
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const silent = await open()
    let isOver = false
    silent.on('close', () => {
      isOver = true
    })
    const turns = async () => {
      for (let turn = 0; turn < 100; turn += 1) await new Promise(setImmediate)
    }
    await turns()
    vi.advanceTimersByTime(9_900)
    await turns()
    expect(isOver).toBe(false)
    vi.advanceTimersByTime(200)
    vi.useRealTimers()
    await eventually(() => expect(isOver).toBe(true))
    expect(refusals().at(-1)).toContain('10000 ms')
  })

  it('hears that nobody is there', async () => {
    const { cluster, attempt, node } = await startCluster()
    const token = (await cluster.makeToken()).reveal()
    await node.listener.stop()
    await expect(attempt(token)).rejects.toMatchObject({ code: 'join-unreachable' })
  })

  it.each([
    ['nothing that is understood', '{"token_id": 1}'],
    ['a request for a certificate that is none', undefined],
  ])('is refused when it sends %s', async (_what, text) => {
    const { cluster, node } = await startCluster()
    const token = parseJoinToken((await cluster.makeToken()).reveal())
    const socket = connect({
      ...node.address,
      rejectUnauthorized: false,
      ALPNProtocols: [JOIN_PROTOCOL],
    })
    const { id: token_id, secret } = token ?? {}
    socket.write(text ?? JSON.stringify({ token_id, secret, request: 'none', ports: PORTS }))
    const answer = JSON.parse(Buffer.concat(await socket.toArray()).toString())
    expect(answer).toEqual({ code: 'join-malformed', message: JOIN_REFUSALS['join-malformed'] })
  })

  it('is told of no mistake but that there was one', async () => {
    const clock = new ManualClock(Date.now())
    const cluster = await createCluster(clock)
    const token = (await cluster.makeToken()).reveal()
    cluster.material.findJoinToken = async () => {
      throw new Error('the database at 10.0.0.7 is away')
    }
    const { attempt, node } = await startCluster(cluster)
    await expect(attempt(token)).rejects.toMatchObject({ code: 'join-failed' })
    expect(node.captured.text()).toContain('10.0.0.7')
  })
})

describe('a join token', () => {
  it('is kept as a hash, and read back from its text', async () => {
    const { token, kept } = createJoinToken('ab'.repeat(32), 5)
    const parsed = parseJoinToken(` ${token.reveal()}\n`)
    expect(parsed).toMatchObject({ id: kept.id, fingerprint: 'ab'.repeat(32) })
    expect(JSON.stringify(kept)).not.toContain(parsed?.secret)
    expect(`${token}`).toBe('[secret]')
    expect(parseJoinToken('join_1_2_3')).toBeUndefined()
  })

  it('has one code for each refusal', () => {
    expect(isJoinRefusalCode('join-token-used')).toBe(true)
    expect(isJoinRefusalCode('toString')).toBe(false)
  })
})

describe('the identity in a folder', () => {
  it('is none before the node has joined', () => {
    expect(readIdentity(temporaryFolder())).toBeUndefined()
  })

  it('is refused when its parts do not belong together', async () => {
    const { cluster } = await startCluster()
    const folder = temporaryFolder()
    const [one, other] = [await cluster.identify('nd_a'), await cluster.identify('nd_b')]
    for (const odd of [
      { ...one, keyPem: other.keyPem },
      { ...one, nodeId: 'nd_b' },
      { ...one, authorityPem: (await createCluster()).authority.certPem },
    ]) {
      keepIdentity(folder, odd)
      expect(() => readIdentity(folder)).toThrow('is damaged')
    }
    mkdirSync(join(folder, 'sub'))
    writeFileSync(join(folder, 'node.json'), readFileSync(join(folder, 'node.json')).subarray(9))
    expect(() => readIdentity(folder)).toThrow('join the cluster again')
  })
})
