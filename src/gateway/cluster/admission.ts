import { copyFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { createPrivateKeyPem } from '../records/private-key.ts'
import { IdSource } from '../records/resource-id.ts'
import { ForgottenError } from './nodes/forgotten-nodes.ts'
import {
  type AuthorityPem,
  ClusterAuthority,
  createAuthority,
  requestFor,
} from './peers/cluster-authority.ts'
import { type ClusterMaterial, opens, parseJoinToken } from './peers/join-token.ts'
import { IDENTITY_FILE, keepIdentity, type PeerIdentity } from './peers/peer-identity.ts'
import { unreadableError } from './service-file.ts'

export interface AdmissionOptions {
  /** Directory of the identity. */
  readonly folder: string
  readonly material: ClusterMaterial
  readonly joinTokenPath: string | undefined
  readonly log: Logger
  readonly clock: Clock
}

const newNodeId = (clock: Clock) => new IdSource(clock).next('nd')

/**
 * Adds this gateway to the site: the first gateway directly, others with a token. Throws a StartError, and
 * DatabaseErrors.
 */
export async function admit(options: AdmissionOptions): Promise<PeerIdentity> {
  const identity = await obtainIdentity(options)
  keepIdentity(options.folder, identity)
  return identity
}

/**
 * The same for a removed gateway, as a new node. The old identity is kept in `node.json.forgotten`. Throws a
 * ForgottenError, with the directory unchanged, and DatabaseErrors.
 */
export async function admitAgain(
  options: AdmissionOptions,
  nodeId: string,
  forgottenAt: number,
): Promise<PeerIdentity> {
  const { folder, joinTokenPath, log } = options
  try {
    const identity = await obtainIdentity(options)
    const path = join(folder, IDENTITY_FILE)
    copyFileSync(path, `${path}.forgotten`)
    keepIdentity(folder, identity)
    log.warn(
      { before: nodeId, node: identity.nodeId },
      'this gateway was removed from the cluster and joined it again as a new node',
    )
    return identity
  } catch (error) {
    if (!(error instanceof StartError)) throw error
    throw new ForgottenError(nodeId, forgottenAt, joinTokenPath && error.message)
  }
}

async function obtainIdentity(options: AdmissionOptions): Promise<PeerIdentity> {
  const { material, clock } = options
  let made: AuthorityPem | undefined
  const kept = await material.keepAuthority(async () => {
    made = await createAuthority(clock.now())
    return made
  })
  const authority = await ClusterAuthority.open(kept)
  const keyPem = await createPrivateKeyPem()
  const request = await requestFor(keyPem)
  const { nodeId, certPem } =
    made?.certPem === kept.certPem
      ? await asFirst(authority, request, clock)
      : await withToken(authority, request, options)
  return { nodeId, certPem, keyPem, authorityPem: kept.certPem }
}

type Admitted = Pick<PeerIdentity, 'nodeId' | 'certPem'>

async function asFirst(
  authority: ClusterAuthority,
  request: string,
  clock: Clock,
): Promise<Admitted> {
  const nodeId = newNodeId(clock)
  return { nodeId, certPem: await authority.issue(nodeId, request, clock.now()) }
}

async function withToken(
  authority: ClusterAuthority,
  request: string,
  { folder, material, joinTokenPath, log, clock }: AdmissionOptions,
): Promise<Admitted> {
  const token = parseJoinToken(readToken(joinTokenPath, folder))
  if (!token) throw new StartError(`${joinTokenPath} contains no valid join token: ${HOW}`)
  if (token.fingerprint !== authority.fingerprint) {
    throw new StartError(
      `${joinTokenPath} is for another cluster than GATEWAY_DATABASE_URL: ${HOW}`,
    )
  }
  const kept = await material.findJoinToken(token.id)
  // Without the secret, a caller learns nothing about the token.
  if (!kept || !opens(token, kept)) throw new StartError(TOKEN_REFUSALS.unknown)
  if (kept.usedBy !== undefined) throw new StartError(TOKEN_REFUSALS.used)
  if (clock.now() >= kept.expiresAt) throw new StartError(TOKEN_REFUSALS.expired)
  const nodeId = newNodeId(clock)
  const certPem = await authority.issue(nodeId, request, clock.now())
  // Last: a used token without a result would have to be created again.
  if (!(await material.useJoinToken(token.id, nodeId))) throw new StartError(TOKEN_REFUSALS.used)
  log.info({ node: nodeId }, 'node joined')
  return { nodeId, certPem }
}

/** Remedies for invalid and expired tokens. */
const TOKEN_REFUSALS = {
  unknown: 'The join token is unknown to the cluster. Create a new token on one of its nodes.',
  used: 'The join token was already used. Create a new token for each node.',
  expired: 'The join token has expired. Create a new token.',
} as const

const HOW =
  'run `device-agent gateway join-token` on a running gateway, and set GATEWAY_JOIN_TOKEN_FILE to a file with the token.'

function readToken(path: string | undefined, folder: string): string {
  if (path === undefined) {
    throw new StartError(
      `GATEWAY_DATABASE_URL belongs to an existing cluster, and this gateway has no join token: ${HOW}`,
    )
  }
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const refused = unreadableError(path, folder, error)
    if (refused) throw refused
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`The join token ${path} cannot be read: ${code}.`, { cause: error })
  }
}
