import { fieldChanges } from '../../base/audit.ts'
import { areEqualHashes, hashToken } from '../../base/secret.ts'
import type { AuditTrail } from '../../store/audit-trail.ts'
import type { Database } from '../../store/database.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'

/** Fields whose values the audit trail shows. */
const OPEN = new Set(['acl'])

/** Compared if there is no authtoken, so that the response time is the same. */
const NO_HASH = hashToken('')

export interface AuthtokenSuccessorsDeps {
  readonly database: Pick<Database, 'change'>
  readonly trail: Pick<AuditTrail, 'run'>
  readonly credentials: CredentialStore
}

/**
 * Replaces the authtoken of a device that joins again. The new authtoken has the id of the old one, and waits
 * as its successor until the device uses it.
 *
 * INVARIANTS
 * - A credential has two authtokens at most. The authtoken that the device has stored is one of them.
 * - The old authtoken ends when the new one authenticates a session, or proves an earlier join.
 * - The old authtoken cannot end the new one: it may be stolen, and the device may be off for months.
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
    const waiting = this.#waitingFor(credential)
    if (!waiting) return
    const change = {
      actor: { kind: 'invite', ...waiting.successor.invite },
      client,
      ...replacedBy(waiting),
    } as const
    let found: Credential | undefined
    const work = () => {
      const store = () => {
        found = this.#waitingFor(credential)
        if (found) this.#deps.credentials.replace(succeeded(found))
      }
      // A device has to be let in on a full disk too, and its old authtoken has to end.
      return database.change(store, { concludes: credential.id, mayUseReserve: true })
    }
    await trail.run(change, work, {
      about: () => ({}),
      codeOf: () => 'storage-unavailable',
      concluded: () => (found ? replacedBy(found) : {}),
    })
  }

  /** The stored credential, if this authtoken is its successor. */
  #waitingFor({ id, tokenHash }: Credential) {
    const stored = this.#deps.credentials.get(id)
    const successor = stored?.successor
    if (!successor || !areEqualHashes(tokenHash, successor.tokenHash)) return undefined
    return { ...stored, successor }
  }
}

/** Entry for the audit trail: the new authtoken of a device ends the old one, and brings its rules. */
export function replacedBy(credential: Credential) {
  const { id, description, acl } = credential
  const after = succeeded(credential)
  return {
    action: 'credential.replace',
    targetId: id,
    targetName: description,
    changes: { authtoken: 'changed', ...fieldChanges({ acl }, { acl: after.acl }, OPEN) },
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
