import { type AuditedChange, fieldChanges } from '../../../base/audit.ts'

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
  const [old, fresh] = [audited(before), audited(after)]
  const name = named('id' in after ? after : before)
  return { ...name, changes: fieldChanges(old, fresh, OPEN) }
}

/** What somebody would call the thing that a view shows. */
export function named(view: object): Partial<AuditedChange> {
  const { id, name, domain, addr, url, cidr, description } = view as View
  const targetName = [name, domain, addr, url, cidr, description].find(
    (text): text is string => typeof text === 'string' && text !== '',
  )
  return { ...(typeof id === 'string' && { targetId: id }), ...(targetName && { targetName }) }
}

function audited(view: object): View {
  return Object.fromEntries(
    Object.entries(view).filter(([field]) => OPEN.has(field) || CLOSED.has(field)),
  )
}
