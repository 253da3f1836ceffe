import * as z from 'zod'
import { ACTOR_KINDS } from '../../../base/audit.ts'
import { maskedWebhookUrl } from '../../../base/masked-text.ts'
import type { AuditEntry, AuditTrail } from '../../../store/audit-trail.ts'
import { ownedByGateway } from '../common/caller.ts'
import { itemFields, timestamp } from '../common/request.ts'
import { type Resource, withoutSecretUrls } from '../common/resource.ts'

const PREFIX = 'au'
/** Ids have the form of all ids here; these count. */
const DIGITS = 27

const AuditEntryView = z.strictObject({
  ...itemFields,
  who: z.strictObject({
    kind: z.enum(ACTOR_KINDS),
    id: z.string().nullable(),
    name: z.string(),
  }),
  /** Address; null on the command line. */
  client: z.string().nullable(),
  /** Resource and verb, such as `credential.create`. */
  action: z.string(),
  target: z.strictObject({ id: z.string().nullable(), name: z.string().nullable() }),
  /** By field: before and after, or "changed" where a value may be secret. */
  changes: z.record(z.string(), z.unknown()).nullable(),
  /** `ok`, `unknown`, or the code of the refusal. */
  result: z.string(),
  request_id: z.string().nullable(),
})

interface Item extends Omit<AuditEntry, 'id'> {
  readonly id: string
}

/** The audit trail, which is read-only. */
export function audit(trail: AuditTrail): Resource<Item> {
  return {
    path: 'audit',
    noun: 'AuditEntry',
    about: "Audit log of changes, for keys of the gateway's owner. It is empty for other keys.",
    collection: 'entries',
    prefix: PREFIX,
    schema: AuditEntryView,
    page: ({ limit, beforeId }) =>
      trail
        .page({ limit, beforeId: beforeId === undefined ? undefined : numberOf(beforeId) })
        .map(toItem),
    ownerOf: ownedByGateway,
    get: (id) => {
      const entry = trail.get(numberOf(id))
      return entry && toItem(entry)
    },
    view: (entry, baseUrl) =>
      ({
        id: entry.id,
        uri: `${baseUrl}/audit/${entry.id}`,
        created_at: timestamp(entry.at),
        who: entry.actor,
        client: entry.client,
        action: entry.action,
        target: { id: entry.targetId ?? null, name: entry.targetName ?? null },
        changes: entry.changes ?? null,
        result: entry.result,
        request_id: entry.requestId ?? null,
      }) satisfies z.infer<typeof AuditEntryView>,
  }
}

/** Entries of earlier versions have URLs of webhooks in full. */
function toItem(entry: AuditEntry): Item {
  const { targetName, changes } = entry
  return {
    ...entry,
    ...(targetName?.includes('://') && { targetName: maskedWebhookUrl(targetName) }),
    ...(changes && { changes: withoutSecretUrls(changes) }),
    id: `${PREFIX}_${String(entry.id).padStart(DIGITS, '0')}`,
  }
}

/** Entries count from 1, so 0 stands for a text that is no id of one. */
function numberOf(id: string): number {
  const digits = id.slice(PREFIX.length + 1)
  return /^\d+$/.test(digits) ? Number(digits) : 0
}
