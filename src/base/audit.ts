/**
 * Kind of authentication. `console` and `page` are browser sessions, which act for an API key or a token.
 * `invite` is a device that joins with an invitation.
 */
export const ACTOR_KINDS = [
  'token',
  'api-key',
  'console',
  'page',
  'command-line',
  'invite',
] as const

/** Author of a change, as named in the audit trail. */
export interface Actor {
  readonly kind: (typeof ACTOR_KINDS)[number]
  /** Id of the token, key or invitation, null if not applicable. */
  readonly id: string | null
  /** Name of the token or key, or the user on the command line. */
  readonly name: string
}

/** Changed fields: the value before and after, or `changed` if the value may be secret. */
export type FieldChanges = Readonly<Record<string, readonly [unknown, unknown] | 'changed'>>

/** A requested change, before its result is known. */
export interface AuditedChange {
  readonly actor: Actor
  /** Address of the client. Null on the command line. */
  readonly client: string | null
  /** Resource and verb, for example `tunnel.create`. */
  readonly action: string
  readonly targetId?: string | undefined
  readonly targetName?: string | undefined
  readonly changes?: FieldChanges | undefined
  readonly requestId?: string | undefined
}

/** Describes a change by the id in its final write. One write may change several objects. */
export type Concluded = (id: string) => Partial<AuditedChange> | readonly Partial<AuditedChange>[]

/**
 * Returns the fields that differ between two states. Values are included only for fields in `open`. Other
 * fields, such as policies with passwords, are marked as changed.
 */
export function fieldChanges(
  before: Readonly<Record<string, unknown>>,
  after: Readonly<Record<string, unknown>>,
  open: ReadonlySet<string>,
): FieldChanges {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  const differing = names.filter((name) => textOf(before[name]) !== textOf(after[name]))
  return Object.fromEntries(
    differing.map((name) => [
      name,
      open.has(name) ? ([before[name] ?? null, after[name] ?? null] as const) : 'changed',
    ]),
  )
}

/** Treats all empty values as equal: missing, empty text, empty list. */
function textOf(value: unknown): string {
  const text = JSON.stringify(value) ?? 'null'
  return text === '""' || text === '[]' ? 'null' : text
}
