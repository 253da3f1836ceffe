import { type AuditedChange, type FieldChanges, fieldChanges } from '../../../base/audit.ts'
import { maskedWebhookUrl } from '../../../base/masked-text.ts'

/** Fields that the audit trail shows with their values, in whichever resource they are. */
const OPEN = new Set([
  ...[
    'name',
    'description',
    'domain',
    'addr',
    'url',
    'region',
    'active',
    'owner_id',
    'acl',
    'bindings',
    'quotas',
  ],
  ...['tags', 'provisioned'],
  ...['shared', 'scope', 'owner_only', 'expires_at', 'cidr', 'action', 'ip_policy'],
  'certificate_management_policy',
])
/** Those that may hold secrets: of them it is told that they changed. */
const CLOSED = new Set(['metadata', 'traffic_policy'])

type View = Readonly<Record<string, unknown>>

/** What the audit trail says of a change, out of what the API showed before and shows now. */
export function changedBetween(before: object, after: object): Partial<AuditedChange> {
  // Quotas are news where they change, not where an account begins and ends.
  const isUpdate = 'id' in before && 'id' in after
  const [old, fresh] = [audited(before, isUpdate), audited(after, isUpdate)]
  const name = named('id' in after ? after : before)
  return { ...name, changes: withoutSecretUrls(fieldChanges(old, fresh, OPEN)) }
}

/** Changes of URLs by scheme and host: the path of a webhook's URL may let its holder in. */
export function withoutSecretUrls(changes: FieldChanges): FieldChanges {
  const { url } = changes
  if (!url || url === 'changed') return changes
  const [before, after] = url.map((it) => (typeof it === 'string' ? maskedWebhookUrl(it) : it))
  return { ...changes, url: before === after ? 'changed' : [before, after] }
}

/** What somebody would call the thing that a view shows. */
export function named(view: object): Partial<AuditedChange> {
  const { id, name, domain, addr, url, cidr, description } = view as View
  const place = typeof url === 'string' ? maskedWebhookUrl(url) : undefined
  const targetName = [name, domain, addr, place, cidr, description].find(
    (text): text is string => typeof text === 'string' && text !== '',
  )
  return { ...(typeof id === 'string' && { targetId: id }), ...(targetName && { targetName }) }
}

function audited(view: object, isUpdate: boolean): View {
  return Object.fromEntries(
    Object.entries(view).filter(
      ([field]) => (OPEN.has(field) && (isUpdate || field !== 'quotas')) || CLOSED.has(field),
    ),
  )
}
