import type { BotUserStore } from '../records/bot-user-store.ts'
import type { CredentialStore } from '../records/credential-store.ts'

/**
 * Calls `listener` with the id of each credential that was changed or deleted, itself or with its owner,
 * whoever did it: what it no longer allows has to end.
 */
export function watchCredentials(
  { credentials, botUsers }: { credentials: CredentialStore; botUsers: BotUserStore },
  listener: (credentialId: string) => void,
): void {
  credentials.onChange(({ before }) => before && listener(before.id))
  botUsers.onChange(({ before, after }) => {
    if (!before || !after || before.active === after.active) return
    for (const id of credentials.idsOfOwner(after.id)) listener(id)
  })
}
