import { randomBytes } from 'node:crypto'
import { createToken, hashToken, matchesHash, Secret } from '../../../base/secret.ts'
import type { AuthorityPem } from './cluster-authority.ts'

/** Shared identity material of all nodes, stored where all reach it. */
export interface ClusterMaterial {
  /** Stores the new authority unless there is one. Returns the stored authority. */
  keepAuthority(make: () => Promise<AuthorityPem>): Promise<AuthorityPem>
  keepJoinToken(token: KeptJoinToken): Promise<void>
  findJoinToken(id: string): Promise<KeptJoinToken | undefined>
  /** Marks a token as used, permanently. False if it was used before, also at the same moment. */
  useJoinToken(id: string, nodeId: string): Promise<boolean>
}

const FORM = /^join_([0-9a-f]{16})_([0-9A-Za-z_-]{43})_([0-9a-f]{64})$/

/** Stored form of a token, without its secret. */
export interface KeptJoinToken {
  readonly id: string
  /** SHA-256 of its secret, hex. */
  readonly hash: string
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
  /** The node that has joined with it. */
  readonly usedBy: string | undefined
}

/** A token as a person carries it to the machine that is to join. */
export interface JoinToken {
  readonly id: string
  readonly secret: string
  /** Fingerprint of the cluster's authority; see `fingerprintOf`. */
  readonly fingerprint: string
}

/** For one node, once: it lets the node in, and tells it which cluster is meant. */
export function createJoinToken(
  fingerprint: string,
  expiresAt: number,
): { readonly token: Secret; readonly kept: KeptJoinToken } {
  const id = randomBytes(8).toString('hex')
  const secret = createToken('')
  const token = new Secret(`join_${id}_${secret}_${fingerprint}`)
  return { token, kept: { id, hash: hashToken(secret), expiresAt, usedBy: undefined } }
}

/** Undefined for a text that is no join token. */
export function parseJoinToken(text: string): JoinToken | undefined {
  const [, id, secret, fingerprint] = FORM.exec(text.trim()) ?? []
  if (id === undefined || secret === undefined || fingerprint === undefined) return undefined
  return { id, secret, fingerprint }
}

/** Compares the secret with the stored token in constant time. */
export function opens({ secret }: Pick<JoinToken, 'secret'>, { hash }: KeptJoinToken): boolean {
  return matchesHash(secret, hash)
}
