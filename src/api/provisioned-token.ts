import type { KeptValues } from '../agent/kept-values.ts'
import type { Actor } from '../base/audit.ts'
import type { Logger } from '../base/logger.ts'
import type { AuditTrail } from '../store/audit-trail.ts'
import { type ApiTokens, PROVISIONED } from './api-tokens.ts'

const STARTER: Actor = { kind: 'command-line', id: null, name: 'start of the agent' }
const KEPT = 'provisioned-token'

export interface ProvisionedTokenOptions {
  /** AGENT_API_TOKEN_SHA256. */
  readonly hash: string
  readonly tokens: ApiTokens
  readonly kept: KeptValues
  readonly trail: AuditTrail
  readonly log: Logger
}

/**
 * Takes the token over that was made when the device was provisioned, once for each hash: rotated or
 * revoked later, it stays what that made of it, although the setting says the same as ever.
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
    // Last: what ends before this is done again, and comes to the same.
    kept.set(KEPT, hash)
  } catch (error) {
    log.error({ err: error }, 'cannot import the API token from provisioning')
  }
}
