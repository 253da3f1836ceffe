import * as z from 'zod'
import type { Secret } from '../../base/secret.ts'
import type { Credential } from '../records/credential-store.ts'
import { Timestamp, timestamp } from './timestamp.ts'

/** What authtokens and API keys show alike. */
export const tokenFields = {
  id: z.string(),
  uri: z.string(),
  created_at: Timestamp,
  description: z.string(),
  metadata: z.string(),
  /** Only in the answer to its creation. */
  token: z.string().nullable(),
  owner_id: z.string().nullable(),
}
const TokenView = z.strictObject(tokenFields)

export function viewToken(
  {
    id,
    createdAt,
    description,
    metadata,
    ownerId,
  }: Omit<Credential, 'acl' | 'granted' | 'tokenHash'>,
  listUri: string,
  token: Secret | undefined,
): z.infer<typeof TokenView> {
  return {
    id,
    uri: `${listUri}/${id}`,
    created_at: timestamp(createdAt),
    description,
    metadata,
    token: token?.reveal() ?? null,
    owner_id: ownerId,
  }
}
