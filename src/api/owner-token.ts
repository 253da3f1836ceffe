import type { KeptValues } from '../agent/kept-values.ts'
import { StartError } from '../base/app-error.ts'
import type { Actor } from '../base/audit.ts'
import { closeSecretFile } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import type { AuditTrail } from '../store/audit-trail.ts'
import { type ApiTokens, OWNER, type OwnerAdoption, PROVISIONED } from './api-tokens.ts'

const STARTER: Actor = { kind: 'command-line', id: null, name: 'start of the agent' }
const KEPT = 'provisioned-token'

interface ProvisionedTokenOptions {
  /** AGENT_API_TOKEN_SHA256. */
  readonly hash: string
  readonly tokens: ApiTokens
  readonly kept: KeptValues
  readonly trail: AuditTrail
  readonly log: Logger
}

/**
 * Adopts the token from provisioning, once for each hash. A later rotation or revocation is kept although the
 * setting does not change.
 */
export function adoptProvisionedToken(options: ProvisionedTokenOptions): void {
  const { hash, tokens, kept, trail, log } = options
  if (kept.get(KEPT) === hash) return
  try {
    const done = tokens.adoptProvisioned(hash)
    if (done) {
      const action = done === 'made' ? 'token.create' : 'token.rotate'
      const target = { targetId: PROVISIONED, targetName: tokens.find(PROVISIONED).name }
      trail.record({ actor: STARTER, client: null, action, ...target })
      log.info({ id: PROVISIONED }, 'the API token from provisioning is active')
    }
    // Last step: after an earlier interruption, all steps run again with the same result.
    kept.set(KEPT, hash)
  } catch (error) {
    log.error({ err: error }, 'cannot import the API token from provisioning')
  }
}

/** Names of the owner-token changes in the audit trail. */
const ACTIONS: Partial<Record<OwnerAdoption, string>> = {
  made: 'token.create',
  healed: 'token.heal',
  dropped: 'token.delete',
}

export interface OwnerTokenOptions {
  readonly tokens: ApiTokens
  readonly trail: AuditTrail
  readonly log: Logger
}

/**
 * Ensures that the owner has a token. Throws a StartError if there never was a token and none can be stored.
 * Later, a failure is only logged: tunnels matter more than the API.
 */
export function openOwnerToken({ tokens, trail, log }: OwnerTokenOptions): void {
  const path = tokens.ownerPath
  const isFirst = tokens.list().length === 0
  if (closeSecretFile(path))
    log.warn({ file: path }, 'other users could read this file, rotate the API token')
  try {
    const done = tokens.adoptOwner()
    const action = ACTIONS[done]
    if (action)
      trail.record({ actor: STARTER, client: null, action, targetId: OWNER, targetName: OWNER })
    if (done === 'made') log.info({ file: path }, 'the API token is stored in this file')
    if (done === 'healed')
      log.warn(
        { file: path },
        'the token in this file differs from the stored hash, using the file',
      )
    if (done === 'dropped') log.info({ file: path }, 'AGENT_API_TOKEN replaces this file')
    if (done === 'unreadable')
      log.warn({ file: path }, 'cannot read this file, the last known token stays valid')
  } catch (error) {
    if (isFirst && !tokens.ownerPlain) {
      throw new StartError(
        'Cannot create an API token, because the data directory is not writable. Set AGENT_API_TOKEN or make the directory writable.',
        { cause: error },
      )
    }
    log.error({ err: error, file: path }, 'cannot update the API token')
  }
}
