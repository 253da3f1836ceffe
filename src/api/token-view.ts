import * as z from 'zod'
import { type AuditedChange, fieldChanges } from '../base/audit.ts'
import { parse } from '../http/parse.ts'
import type { NewToken, ShownToken, TokenChange, TokenToBe } from './api-tokens.ts'
import { IsoTime, isoTime, isoTimeOrNull } from './iso-time.ts'
import { MAX_OVERLAP_S } from './token-form.ts'

const DEFAULT_OVERLAP_S = 3_600

const Expiry = z.iso
  .datetime({ offset: true, error: 'must be a time such as 2030-01-31T09:00:00Z' })
  .transform((text) => Date.parse(text))
  .nullable()

/** Body of `POST /tokens`. */
export const TokenRequest = z.strictObject({
  // Not an id, because a path may have either; nothing that breaks a line of a log or a table.
  name: z
    .string()
    .regex(
      /^(?!tok_)[\p{L}\p{N}](?:[\p{L}\p{N} ._@+-]{0,62}[\p{L}\p{N}._@+-])?$/u,
      'must have 1 to 64 letters, digits, spaces or . _ @ + - and must not begin with tok_',
    )
    .describe('name of the token, such as its user or purpose'),
  scope: z.enum(['read', 'write'], 'must be read or write').default('read'),
  expires_at: Expiry.optional().describe('expiry; unset or null: never'),
})

/** Body of `POST /tokens/{id}/rotate`. */
export const TokenRotation = z.strictObject({
  overlap_s: z
    .int(`must be a whole number from 0 to ${MAX_OVERLAP_S}`)
    .min(0, 'must not be negative')
    .max(MAX_OVERLAP_S, `must be at most ${MAX_OVERLAP_S}`)
    .default(DEFAULT_OVERLAP_S)
    .describe('seconds that the previous secret stays valid'),
  expires_at: Expiry.optional().describe('new expiry; null: never; unset: unchanged'),
})

/** Throws AppError `invalid-request`, as does the other. */
export function readTokenRequest(body: unknown): TokenToBe {
  const { name, scope, expires_at: expiresAt = null } = parse(TokenRequest, body)
  return { name, scope, expiresAt }
}

export function readTokenRotation(body: unknown): TokenChange {
  const { overlap_s, expires_at: expiresAt } = parse(TokenRotation, body)
  return { overlapMs: overlap_s * 1_000, expiresAt }
}

/** A token as clients see it. */
export const TokenView = z.strictObject({
  id: z.string(),
  name: z.string(),
  scope: z.enum(['read', 'write']),
  source: z
    .enum(['made', 'file', 'setting'])
    .describe('file: stored in data/api-token; setting: set by AGENT_API_TOKEN'),
  created_at: IsoTime,
  expires_at: IsoTime.nullable(),
  last_used_at: IsoTime.nullable().describe('accurate to about a minute'),
  overlap_ends_at: IsoTime.nullable().describe('end of validity of the previous secret'),
})
export type TokenView = z.infer<typeof TokenView>

/** The same with its secret, which is shown this once. */
export const NewTokenView = TokenView.extend({ token: z.string() })
export type NewTokenView = z.infer<typeof NewTokenView>

export function tokenView(token: ShownToken): TokenView {
  const { id, name, scope, source, createdAt, expiresAt, lastUsedAt, overlapEndsAt } = token
  return {
    id,
    name,
    scope,
    source,
    created_at: isoTime(createdAt),
    expires_at: isoTimeOrNull(expiresAt ?? undefined),
    last_used_at: isoTimeOrNull(lastUsedAt ?? undefined),
    overlap_ends_at: isoTimeOrNull(overlapEndsAt ?? undefined),
  }
}

export function newTokenView({ token, secret }: NewToken): NewTokenView {
  return { ...tokenView(token), token: secret.reveal() }
}

/** Audit entry of a new or rotated token. */
export function aboutNew({ token, before }: NewToken): Partial<AuditedChange> {
  const { id, name } = token
  const changes = fieldChanges(before ? audited(before) : {}, audited(token), AUDITED)
  return { targetId: id, targetName: name, changes }
}

const AUDITED = new Set(['scope', 'expires_at', 'overlap_ends_at'])

function audited(token: ShownToken): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(tokenView(token)).filter(([name]) => AUDITED.has(name)))
}

export function aboutRevoked({ id, name }: ShownToken): Partial<AuditedChange> {
  return { targetId: id, targetName: name }
}
