import type { X509Certificate } from 'node:crypto'
import { connect, type TLSSocket } from 'node:tls'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { withDeadline } from '../../base/deadline.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import { JsonReader } from '../../muxado/json-reader.ts'
import { createPrivateKeyPem } from '../records/private-key.ts'
import { authorityBehind, fingerprintOf, requestFor } from './cluster-authority.ts'
import type { JoinRequest, PublicPorts } from './join-desk.ts'
import { isJoinRefusalCode, JoinRefusedError } from './join-refusal.ts'
import type { JoinToken } from './join-token.ts'
import { nodeName } from './node-name.ts'
import { JOIN_PROTOCOL, type PeerIdentity } from './peer-identity.ts'

const WITHIN_MS = 10_000
const MAX_ANSWER_BYTES = 32_768
/** Of a chain: a server has two of its own. */
const MAX_CHAIN = 4

const AnswerSchema = z.union([
  z.strictObject({
    node_id: z.string().transform((id, context) => {
      try {
        nodeName(id)
      } catch {
        context.addIssue('no node id')
      }
      return id
    }),
    certificate: z.string(),
    authority: z.string(),
  }),
  z.strictObject({ code: z.string(), message: z.string() }),
])

export interface JoinOptions {
  /** Of any node of the cluster: its GATEWAY_PEER_LISTEN. */
  readonly address: ListenAddress
  readonly token: JoinToken
  readonly ports: PublicPorts
  readonly clock: Clock
}

/**
 * Makes this node one of a cluster. What answers has to be the cluster that the token is for before
 * it gets to see the token. Rejects with a JoinRefusedError.
 */
export async function joinCluster(options: JoinOptions): Promise<PeerIdentity> {
  const { token, ports, clock } = options
  const socket = await dial(options.address)
  try {
    const authority = authorityOf(socket, token, clock.now())
    if (!authority) throw new JoinRefusedError('join-cluster-unknown')
    const keyPem = await createPrivateKeyPem()
    const { id: token_id, secret } = token
    const request = { token_id, secret, request: await requestFor(keyPem), ports }
    const answer = AnswerSchema.parse(await ask(socket, request))
    if ('code' in answer) {
      throw new JoinRefusedError(isJoinRefusalCode(answer.code) ? answer.code : 'join-failed')
    }
    const { node_id: nodeId, certificate: certPem } = answer
    // The authority that was checked, not the one that was sent.
    return { nodeId, certPem, keyPem, authorityPem: authority.toString() }
  } catch (error) {
    if (error instanceof JoinRefusedError) throw error
    throw new JoinRefusedError('join-failed', error)
  } finally {
    socket.destroy()
  }
}

async function dial({ host, port }: ListenAddress): Promise<TLSSocket> {
  const socket = connect({
    host,
    port,
    minVersion: 'TLSv1.3',
    ALPNProtocols: [JOIN_PROTOCOL],
    // Who it is stands in the token, and is checked before anything is sent.
    rejectUnauthorized: false,
  })
  const secured = new Promise<void>((resolve, reject) => {
    socket.once('secureConnect', resolve)
    socket.on('error', reject)
  })
  try {
    await withDeadline(secured, WITHIN_MS, 'connecting')
    return socket
  } catch (error) {
    socket.destroy()
    throw new JoinRefusedError('join-unreachable', error)
  }
}

function authorityOf(
  socket: TLSSocket,
  { fingerprint }: JoinToken,
  now: number,
): X509Certificate | undefined {
  const leaf = socket.getPeerX509Certificate()
  if (!leaf || socket.alpnProtocol !== JOIN_PROTOCOL) return undefined
  const chain: X509Certificate[] = []
  for (let at = leaf.issuerCertificate; at && chain.length < MAX_CHAIN; at = at.issuerCertificate) {
    chain.push(at)
    if (fingerprintOf(at) === fingerprint) break
  }
  return authorityBehind(leaf, chain, fingerprint, now)
}

function ask(socket: TLSSocket, request: JoinRequest): Promise<unknown> {
  const reader = new JsonReader(MAX_ANSWER_BYTES)
  const answered = new Promise((resolve, reject) => {
    socket.on('data', (chunk: Buffer) => {
      try {
        const answer = reader.push(chunk)
        if (answer !== undefined) resolve(answer)
      } catch (error) {
        reject(error)
      }
    })
    socket.on('error', reject)
    socket.on('close', () => reject(new Error('the connection ended before the answer')))
  })
  socket.write(JSON.stringify(request))
  return withDeadline(answered, WITHIN_MS, 'joining')
}
