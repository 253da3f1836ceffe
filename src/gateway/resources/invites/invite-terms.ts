import { checkRules } from '../../access/credential-issuer.ts'
import { deviceNames, filled, isDeviceName, NAME_PLACEHOLDER } from '../../access/device-names.ts'
import { checkTexts, ServiceError } from '../../records/service-error.ts'
import type { Invite } from './invite-store.ts'

/** What an invitation gives to a device. */
export type InviteTerms = Pick<
  Invite,
  | 'ownerId'
  | 'description'
  | 'metadata'
  | 'name'
  | 'tags'
  | 'domain'
  | 'acl'
  | 'isGranted'
  | 'expiresAt'
  | 'maxUses'
>

/** Devices that one invitation can let in. */
export const MAX_USES = 1_000
const MAX_LIFE_MS = 366 * 86_400_000
const TEXT_CODES = [215, 215] as const
/** Stands for the name of a device in checks. */
const ANY_NAME = 'any-device'

/** Throws a ServiceError for terms that give no device what they promise. */
export function checkTerms(terms: InviteTerms, now: number): void {
  const { name, domain, acl, expiresAt, maxUses, ownerId } = terms
  checkTexts(terms, TEXT_CODES)
  if (expiresAt <= now || expiresAt > now + MAX_LIFE_MS) {
    throw invalid('expires_at', 'must be in the future, and within a year')
  }
  if (maxUses < 1 || maxUses > MAX_USES) throw invalid('max_uses', `must be 1 to ${MAX_USES}`)
  if (name !== null && !isDeviceName(name.replaceAll(NAME_PLACEHOLDER, 'a'))) {
    throw invalid('name', 'must have up to 63 lower-case letters, digits and hyphens, or {name}')
  }
  if (maxUses > 1) checkReusable(terms)
  if (domain !== null) {
    const names = deviceNames(ANY_NAME, { domain })
    if ('problem' in names) throw invalid('domain', names.problem)
  }
  if (domain === null && acl.length === 0 && ownerId === null) {
    throw invalid('acl', 'set a domain or rules: without them a device could use every name')
  }
  checkRules(acl.map((rule) => filled(rule, ANY_NAME)))
}

/**
 * Several devices must not get one name. A domain needs no placeholder: each device gets a name of its own
 * below it.
 */
function checkReusable({ name, acl }: InviteTerms): void {
  const advice = `must contain ${NAME_PLACEHOLDER}, because max_uses is more than 1`
  if (name !== null && !name.includes(NAME_PLACEHOLDER)) throw invalid('name', advice)
  const shared = acl.find((rule) => !rule.includes(NAME_PLACEHOLDER))
  if (shared !== undefined) throw invalid('acl', `${shared} ${advice}`)
}

/** Rules of an invitation for the checks of a rule, with a name in the place of `{name}`. */
export function sampleRules(acl: readonly string[]): string[] {
  return acl.map((rule) => filled(rule, ANY_NAME))
}

/** The domain of an invitation for its checks, with a name in the place of `{name}`. */
export function sampleDomain(domain: string): string {
  return filled(domain, ANY_NAME)
}

function invalid(field: string, problem: string): ServiceError {
  return new ServiceError(215, `The field ${field} is not valid: ${problem.replace(/\.$/, '')}.`)
}
