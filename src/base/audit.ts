/** With what somebody comes: `console` and `page` are sessions there, which act as a key or token. */
export const ACTOR_KINDS = ['token', 'api-key', 'console', 'page', 'command-line'] as const

/** Who makes a change, as the audit trail names them. */
export interface Actor {
  readonly kind: (typeof ACTOR_KINDS)[number]
  /** Of the token or key; null where there is none. */
  readonly id: string | null
  /** Name of the token or key, or the user of the command line. */
  readonly name: string
}

/** Each field that changed: its value before and after, or that it changed where it may be secret. */
export type FieldChanges = Readonly<Record<string, readonly [unknown, unknown] | 'changed'>>

/** What somebody asks for, before it is known what becomes of it. */
export interface AuditedChange {
  readonly actor: Actor
  /** Address of the client; null on the command line. */
  readonly client: string | null
  /** Resource and verb, such as `tunnel.create`. */
  readonly action: string
  readonly targetId?: string | undefined
  readonly targetName?: string | undefined
  readonly changes?: FieldChanges | undefined
  readonly requestId?: string | undefined
}

/** What the last write of a change concludes, by the id that it names; several things may have changed. */
export type Concluded = (id: string) => Partial<AuditedChange> | readonly Partial<AuditedChange>[]

/**
 * The fields of two states of a thing that differ. Only those that `open` lists are shown with their
 * values: of the others, such as policies with passwords in them, it is told that they changed.
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

/** The same for all that is empty: no text, an empty one, an empty list. */
function textOf(value: unknown): string {
  const text = JSON.stringify(value) ?? 'null'
  return text === '""' || text === '[]' ? 'null' : text
}
