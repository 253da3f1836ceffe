import * as z from 'zod'
import { ACTOR_KINDS } from '../base/audit.ts'
import { parse } from '../http/parse.ts'
import type { Route } from '../http/routes.ts'
import type { AuditEntry, AuditQuery } from '../store/audit-trail.ts'
import { IsoTime, isoTime } from './iso-time.ts'

const MAX_LIMIT = 100
const Time = z.iso.datetime({
  offset: true,
  error: 'must be a time such as 2030-01-31T09:00:00Z',
})
const LIMIT = `must be a whole number from 1 to ${MAX_LIMIT}`
const EMPTY = 'must not be empty'
const BEFORE = 'must be the id of an entry'

/** Query of `GET /audit`: filters and page. */
export const AuditListQuery = z.strictObject({
  limit: z.coerce.number(LIMIT).int(LIMIT).min(1, LIMIT).max(MAX_LIMIT, LIMIT).optional(),
  before_id: z.coerce.number(BEFORE).int(BEFORE).min(1, BEFORE).optional(),
  who: z.string().min(1, EMPTY).optional().describe('id or name of a token'),
  action: z.string().min(1, EMPTY).optional().describe('such as tunnel.create'),
  since: Time.optional().describe('from this time (inclusive)'),
  until: Time.optional().describe('until this time (exclusive)'),
})

/** One change, or one refused change. */
export const AuditEntryView = z.strictObject({
  id: z.int(),
  at: IsoTime,
  who: z.strictObject({
    kind: z.enum(ACTOR_KINDS),
    id: z.string().nullable(),
    name: z.string(),
  }),
  client: z.string().nullable().describe('client address; null for the command line'),
  action: z.string(),
  target: z.strictObject({ id: z.string().nullable(), name: z.string().nullable() }),
  changes: z
    .record(z.string(), z.unknown())
    .nullable()
    .describe('old and new value by field, or "changed" if a value may be secret'),
  result: z.string().describe('ok, unknown, or an error code'),
  request_id: z.string().nullable(),
})
export const AuditPage = z.strictObject({
  entries: z.array(AuditEntryView),
  next: z.string().nullable().describe('path of the next page'),
})

/** The part of the audit trail that the API reads. */
export interface AuditPages {
  page(query: AuditQuery): AuditEntry[]
}

/** `/audit`: changes with their actors, newest first. */
export function auditRoute(trail: AuditPages): Route {
  return {
    route: 'GET /audit',
    id: 'listAudit',
    summary: 'List audit entries, newest first',
    about: 'Audit trail of changes.',
    query: AuditListQuery,
    answers: { 200: { means: 'A page of the audit trail.', schema: { AuditPage } } },
    handle: (request, response) => {
      const query = parse(AuditListQuery, request.query)
      const { limit = MAX_LIMIT, before_id: beforeId, who: actor, action, since, until } = query
      const times = { since: since && Date.parse(since), until: until && Date.parse(until) }
      // One more than asked for tells whether there is a next page.
      const found = trail.page({
        limit: limit + 1,
        beforeId,
        actor,
        action,
        ...times,
      } as AuditQuery)
      const entries = found.slice(0, limit)
      const last = found.length > limit ? entries.at(-1)?.id : undefined
      response.json({
        entries: entries.map(auditEntryView),
        next: last === undefined ? null : nextPage(request.query, last),
      } satisfies z.infer<typeof AuditPage>)
    },
  }
}

function nextPage(query: object, beforeId: number): string {
  const next = new URLSearchParams({ ...query, before_id: String(beforeId) })
  return `/audit?${next}`
}

function auditEntryView(entry: AuditEntry): z.infer<typeof AuditEntryView> {
  const { id, at, actor, client, action, targetId, targetName, changes, result } = entry
  return {
    id,
    at: isoTime(at),
    who: actor,
    client,
    action,
    target: { id: targetId ?? null, name: targetName ?? null },
    changes: changes ?? null,
    result,
    request_id: entry.requestId ?? null,
  }
}
