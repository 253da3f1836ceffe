import { onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import type { Secret } from '../../src/base/secret.ts'
import {
  ClusterAuthority,
  createAuthority,
  requestFor,
} from '../../src/gateway/cluster/peers/cluster-authority.ts'
import type { PublicPorts } from '../../src/gateway/cluster/peers/greeting.ts'
import {
  type ClusterMaterial,
  createJoinToken,
  type KeptJoinToken,
} from '../../src/gateway/cluster/peers/join-token.ts'
import type { PeerIdentity } from '../../src/gateway/cluster/peers/peer-identity.ts'
import { PeerLinks } from '../../src/gateway/cluster/peers/peer-links.ts'
import { PeerListener } from '../../src/gateway/cluster/peers/peer-listener.ts'
import type { PeerSession } from '../../src/gateway/cluster/peers/peer-session.ts'
import { createPrivateKeyPem } from '../../src/gateway/records/private-key.ts'
import { BufferAccount } from '../../src/gateway/streams/buffer-account.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import { type CapturedLog, captureLog } from './captured-log.ts'

export const PORTS: PublicPorts = { http: 8_080, https: 8_443 }

/** In memory; what is shared of it in a cluster lies in a database. */
export function createMaterial(): ClusterMaterial & {
  readonly tokens: Map<string, KeptJoinToken>
} {
  const tokens = new Map<string, KeptJoinToken>()
  let authority: ReturnType<typeof createAuthority> | undefined
  return {
    tokens,
    keepAuthority: (make) => {
      authority ??= make()
      return authority
    },
    keepJoinToken: async (token) => void tokens.set(token.id, token),
    findJoinToken: async (id) => tokens.get(id),
    useJoinToken: async (id, nodeId) => {
      const token = tokens.get(id)
      if (!token || token.usedBy !== undefined) return false
      tokens.set(id, { ...token, usedBy: nodeId })
      return true
    },
  }
}

/** A cluster's authority, with what a test wants of it. */
export async function createCluster(clock: Clock = systemClock) {
  const material = createMaterial()
  const authority = await ClusterAuthority.open(
    await material.keepAuthority(() => createAuthority(clock.now())),
  )
  const identify = async (nodeId: string): Promise<PeerIdentity> => {
    const keyPem = await createPrivateKeyPem()
    const certPem = await authority.issue(nodeId, await requestFor(keyPem), clock.now())
    return { nodeId, certPem, keyPem, authorityPem: authority.certPem }
  }
  const makeToken = async (lifeMs = 3_600_000): Promise<Secret> => {
    const { token, kept } = createJoinToken(authority.fingerprint, clock.now() + lifeMs)
    await material.keepJoinToken(kept)
    return token
  }
  return { material, authority, identify, makeToken, clock }
}
export type TestCluster = Awaited<ReturnType<typeof createCluster>>

export interface ListeningNode {
  readonly identity: PeerIdentity
  readonly listener: PeerListener
  readonly address: ListenAddress
  readonly captured: CapturedLog
}

/** A node that others link to; it stops with the running test. */
export async function startListener(
  cluster: TestCluster,
  nodeId: string,
  options: {
    readonly ports?: PublicPorts
    readonly identity?: PeerIdentity
    readonly onVisitor?: (stream: Stream, origin: PeerSession) => void
    readonly onQuestion?: (message: unknown) => Promise<object>
    /** All that have a certificate of the cluster, unless given. */
    readonly isKnown?: (nodeId: string) => boolean
  } = {},
): Promise<ListeningNode> {
  const { ports = PORTS, onVisitor = (stream) => stream.retire() } = options
  const { isKnown = () => true, onQuestion } = options
  const identity = options.identity ?? (await cluster.identify(nodeId))
  const captured = captureLog('debug')
  const { log } = captured
  const { clock } = cluster
  const listener = new PeerListener({
    listen: { host: '127.0.0.1', port: 0 },
    identity,
    ports,
    isKnown: async (nodeId) => isKnown(nodeId),
    onVisitor,
    ...(onQuestion && { onQuestion }),
    log,
    clock,
  })
  const address = await listener.start()
  onTestFinished(() => listener.stop())
  return { identity, listener, address, captured }
}

/** The links of a node to others; they close with the running test. */
export function openLinks(
  identity: PeerIdentity,
  {
    ports = PORTS,
    clock = systemClock,
    onChange = () => {},
  }: { ports?: PublicPorts; clock?: Clock; onChange?: (nodeId: string) => void } = {},
) {
  const captured = captureLog('debug')
  const changes: string[] = []
  const links = new PeerLinks({
    identity: () => identity,
    ports,
    buffers: new BufferAccount(),
    onChange: (nodeId) => {
      changes.push(nodeId)
      onChange(nodeId)
    },
    log: captured.log,
    clock,
  })
  onTestFinished(() => links.stop())
  return { links, changes, captured }
}
