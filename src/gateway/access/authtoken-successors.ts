import type { AuditedChange } from '../../base/audit.ts'
import type { Clock } from '../../base/clock.ts'
import { areEqualHashes, hashToken } from '../../base/secret.ts'
import type { AuditTrail } from '../../store/audit-trail.ts'
import type { Database } from '../../store/database.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'

/** A new authtoken is withdrawn if its device still uses the old one after this time. */
export const SUCCESSOR_MS = 30 * 86_400_000

/** Compared if there is no authtoken, so that the response time is the same. */
const NO_HASH = hashToken('')

export interface AuthtokenSuccessorsDeps {
  readonly database: Pick<Database, 'change'>
  readonly trail: Pick<AuditTrail, 'run'>
  readonly credentials: CredentialStore
  readonly clock: Clock
}

/**
 * Replaces the authtoken of a device that joins again. The new authtoken has the id of the old one, and waits
 * as its successor until the device uses it.
 *
 * INVARIANTS
 * - A credential has two authtokens at most. The authtoken that the device has stored is one of them.
 * - The old authtoken ends when the new one authenticates a session, or proves an earlier join.
 * - The new authtoken ends when a device uses the old one after `SUCCESSOR_MS`. A device that is off keeps both.
 */
export class AuthtokenSuccessors {
  readonly #deps: AuthtokenSuccessorsDeps

  constructor(deps: AuthtokenSuccessorsDeps) {
    this.#deps = deps
  }

  /**
   * Acts on the use of an authtoken: `credential` as `credentialOf` returned it. Resolves when the change is
   * stored, or at once if there is none. Rejects like `Database.change`; the caller then tries again later.
   */
  async settle(credential: Credential, client: string): Promise<void> {
    const { database, trail } = this.#deps
    const first = this.#changeBy(credential)
    if (!first) return
    const change = { ...first.change, client }
    const work = () => {
      const store = () => {
        const found = this.#changeBy(credential)
        if (found) this.#deps.credentials.replace(found.after)
      }
      // A device has to be let in on a full disk too, and its old authtoken has to end.
      return database.change(store, { concludes: credential.id, mayUseReserve: true })
    }
    await trail.run(change, work, {
      about: () => ({}),
      codeOf: () => 'storage-unavailable',
      concluded: () => ({}),
    })
  }

  #changeBy({
    id,
    tokenHash,
  }: Credential):
    | { readonly after: Credential; readonly change: Omit<AuditedChange, 'client'> }
    | undefined {
    const { credentials, clock } = this.#deps
    const stored = credentials.get(id)
    const successor = stored?.successor
    if (!stored || !successor) return undefined
    const isFirstUse = areEqualHashes(tokenHash, successor.tokenHash)
    const isOver = clock.now() >= successor.issuedAt + SUCCESSOR_MS
    if (!isFirstUse && !(isOver && areEqualHashes(tokenHash, stored.tokenHash))) return undefined
    return {
      after: isFirstUse ? succeeded(stored) : { ...stored, successor: null },
      change: {
        actor: { kind: 'invite', ...successor.invite },
        ...replacedBy(stored),
        ...(!isFirstUse && { action: 'credential.withdraw' }),
      },
    }
  }
}

/** Entry for the audit trail: the new authtoken of a device has ended the old one. */
export function replacedBy({ id, description }: Credential) {
  return {
    action: 'credential.replace',
    targetId: id,
    targetName: description,
    changes: { authtoken: 'changed' },
  } as const
}

/**
 * Finds an authtoken in its credential. Its successor is returned with the rules that it brings. Undefined if the
 * authtoken is neither of the two.
 */
export function credentialOf(
  authtoken: string,
  credential: Credential | undefined,
): Credential | undefined {
  const presented = hashToken(authtoken)
  const isCurrent = areEqualHashes(presented, credential?.tokenHash ?? NO_HASH)
  const isNext = areEqualHashes(presented, credential?.successor?.tokenHash ?? NO_HASH)
  if (!credential || !(isCurrent || isNext)) return undefined
  return isCurrent ? credential : succeeded(credential)
}

/** Whether a session with this authtoken may go on. */
export function hasAuthtoken({ tokenHash, successor }: Credential, hash: string): boolean {
  return tokenHash === hash || successor?.tokenHash === hash
}

/** The credential after the first use of its new authtoken. */
export function succeeded(credential: Credential): Credential {
  const { successor } = credential
  if (!successor) return credential
  const { tokenHash, description, metadata, acl, granted } = successor
  return { ...credential, tokenHash, description, metadata, acl, granted, successor: null }
}
