import { createHash } from 'node:crypto'
import type { Claims } from './session.ts'

/** A visitor, as the rules that follow can judge them; what is not known is empty. */
export interface Identity {
  /** The same for the same person at the same provider. */
  readonly id: string
  /** Only one that the provider does not call unverified: rules let people in by it. */
  readonly email: string
  readonly name: string
  readonly provider_user_id: string
}

/** `issuer` makes identifiers of different providers different. */
export function identityOf(claims: Claims, issuer: string): Identity {
  const subject = text(claims.sub)
  const isVerified = isTrue(claims.email_verified) || isTrue(claims.xms_edov)
  const isUnverified = ANY_TENANT.test(issuer) ? !isVerified : isFalse(claims.email_verified)
  const digest = createHash('sha256')
    .update(JSON.stringify([issuer, subject]))
    .digest('base64url')
  return {
    id: `idt_${digest.slice(0, 27)}`,
    email: isUnverified ? '' : text(claims.email),
    name: text(claims.name) || text(claims.preferred_username),
    provider_user_id: subject,
  }
}

/** Whoever runs a tenant there writes what he likes into the email of its users. */
const ANY_TENANT = /^https:\/\/login\.microsoftonline\.com\//
const isTrue = (claim: unknown) => claim === true || claim === 'true'
const isFalse = (claim: unknown) => claim === false || claim === 'false'
const text = (claim: unknown) => (typeof claim === 'string' ? claim : '')
