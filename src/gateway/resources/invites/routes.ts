import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import { isThisMachine } from '../../../base/net/public-names.ts'
import { Acl, isForAnyPort } from '../../access/acl.ts'
import type { Authority } from '../../access/authority.ts'
import type { TcpAddresses } from '../../endpoints/tcp-addresses.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import type { ReservedAddrStore } from '../../records/reserved-addr-store.ts'
import type { ReservedDomainStore } from '../../records/reserved-domain-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import { type Caller, ownerFor } from '../common/caller.ts'
import { itemFields, Timestamp, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import { checkRules } from '../credentials/routes.ts'
import { Tags } from '../devices/routes.ts'
import type { DomainRegistrar } from '../reserved-names/domain-registrar.ts'
import type { Invite, InviteClaim, InviteStore } from './invite-store.ts'
import { type InviteTerms, sampleDomain, sampleRules } from './invite-terms.ts'
import type { Invites, NewInvite } from './invites.ts'

const DEFAULT_LIFE_MS = 3_600_000
/** Devices that an answer lists. */
const MAX_CLAIMS = 100
/** The string is quoted: some shells read the brackets of an IPv6 address as a pattern. */
const JOIN = 'sudo device-agent join -'

const InviteCreate = z.strictObject({
  ...texts,
  owner_id: z.string().nullable().optional(),
  name: z.string().min(1).max(63).optional().describe('name of the device; default: its host name'),
  tags: Tags.optional(),
  domain: z
    .string()
    .min(1)
    .max(255)
    .nullable()
    .optional()
    .describe('wildcard for the names of the device; null: no domain'),
  acl: z.array(z.string()).max(50).optional().describe('further rules for its authtoken'),
  expires_at: z.iso
    .datetime({ offset: true, error: 'must be a time such as 2030-01-31T09:00:00Z' })
    .optional()
    .describe('default: in one hour'),
  max_uses: z.int().optional().describe('number of devices [1]'),
})
const InviteView = z.strictObject({
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
  owner_id: z.string().nullable(),
  name: z.string().nullable(),
  tags: z.array(z.string()),
  domain: z.string().nullable(),
  acl: z.array(z.string()),
  expires_at: Timestamp,
  max_uses: z.int(),
  uses: z.int(),
  state: z.enum(['open', 'used', 'expired', 'withdrawn']),
  /** Only in the answer to its creation. */
  join_string: z.string().nullable(),
  /** Only in the answer to its creation. */
  join_command: z.string().nullable(),
  /**
   * Only in the answer to its creation: the device or account that has the name already. Without one of these
   * authtokens no device can join. Their deletion gives the name of a device to another machine.
   */
  name_taken_by: z
    .strictObject({ device_id: z.string().nullable(), credential_ids: z.array(z.string()) })
    .nullable(),
  /** Only in the answer to its creation: no reserved domain covers the domain yet, so DNS may lack its records. */
  domain_is_new: z.boolean().nullable(),
  /** The newest 100. */
  claims: z.array(
    z.strictObject({
      at: Timestamp,
      name: z.string(),
      hostname: z.string(),
      address: z.string(),
      credential_id: z.string(),
    }),
  ),
})

export interface InvitesResourceDeps {
  readonly invites: Invites
  readonly inviteStore: InviteStore
  readonly domains: ReservedDomainStore
  readonly registrar: DomainRegistrar
  readonly authority: Authority
  readonly reservedAddrs: ReservedAddrStore
  /** Undefined: TCP endpoints are off. */
  readonly tcpAddresses?: TcpAddresses | undefined
  readonly others: OtherGateways
  readonly clock: Clock
  /** Wildcard for devices whose invitation names no domain; undefined: none. */
  readonly defaultDomain?: string | undefined
}

/** Invitations, with which devices get their authtokens. */
export function invites(deps: InvitesResourceDeps): Resource<Invite> {
  const { invites: service, inviteStore: store } = deps
  const view = (invite: Invite, baseUrl: string, made?: NewInvite) => ({
    ...viewInvite(invite, baseUrl, service, made),
    domain_is_new: made ? isNewDomain(invite, deps) : null,
  })
  return {
    path: 'invites',
    noun: 'Invite',
    about: 'Invitations for devices: one line with which a device gets its authtoken.',
    collection: 'invites',
    prefix: 'inv',
    schema: InviteView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: (invite, baseUrl) => view(invite, baseUrl),
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ InviteCreate }, async (body, { baseUrl, caller }) => {
      const terms = termsOf(body, caller, deps)
      const made = await service.create(terms, () => checkGives(terms, caller, deps))
      // A key that is for one owner learns nothing of bot users.
      const isHidden = caller.isOwnerOnly && terms.ownerId === null
      return view(made.invite, baseUrl, isHidden ? { ...made, holder: undefined } : made)
    }),
    remove: (invite) => service.withdraw(invite),
    removal: 'Withdraw: no further device can join with it',
  }
}

function termsOf(
  { owner_id, ...body }: z.infer<typeof InviteCreate>,
  caller: Caller,
  { defaultDomain, clock }: Pick<InvitesResourceDeps, 'defaultDomain' | 'clock'>,
): InviteTerms {
  const ownerId = ownerFor(caller, owner_id)
  const { description = '', metadata = '', name = null, tags = [], acl = [] } = body
  const { max_uses: maxUses = 1, expires_at } = body
  const { domain = ownerId === null ? (defaultDomain ?? null) : null } = body
  if (maxUses > 1 && expires_at === undefined) {
    throw new ServiceError(215, 'The field expires_at is required if max_uses is more than 1.')
  }
  return {
    ownerId,
    description,
    metadata,
    name,
    tags: [...new Set(tags)].sort(),
    domain: domain?.toLowerCase() ?? null,
    acl,
    isGranted: !caller.isOwnerOnly,
    expiresAt: expires_at === undefined ? clock.now() + DEFAULT_LIFE_MS : Date.parse(expires_at),
    maxUses,
  }
}

/** Whether no reserved domain covers the names of an invitation yet: its domain may be mistyped. */
function isNewDomain(
  { domain }: Invite,
  { authority }: Pick<InvitesResourceDeps, 'authority'>,
): boolean {
  if (domain === null || isThisMachine(domain)) return false
  return authority.owners.reservationOf(sampleDomain(domain).replace('*', 'x')) === undefined
}

/** Refuses an invitation that gives more than its author may give. */
function checkGives(terms: InviteTerms, caller: Caller, deps: InvitesResourceDeps): void {
  const { ownerId, acl, domain, isGranted } = terms
  checkRules(deps, caller, sampleRules(acl), [])
  checkTcpHosts(deps, sampleRules(acl))
  if (domain === null) return
  const sample = sampleDomain(domain)
  const found = deps.domains.find(sample)
  if (found && found.ownerId !== ownerId) {
    throw new ServiceError(413, `The domain ${domain} is already reserved.`)
  }
  if (found) return
  try {
    deps.registrar.checkReservation({ domain: sample, ownerId }, { isGranting: isGranted })
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    // Nobody has typed the sample.
    throw new ServiceError(error.code, error.message.replaceAll(sample, domain))
  }
}

/** A rule for a host that this gateway does not have would leave its device without a TCP address. */
function checkTcpHosts(
  { tcpAddresses, others }: Pick<InvitesResourceDeps, 'tcpAddresses' | 'others'>,
  rules: readonly string[],
): void {
  // Another gateway may have another host.
  if (!tcpAddresses || others.count > 1) return
  for (const rule of rules.filter(isForAnyPort)) {
    if (Acl.of([rule]).allowsAddress(tcpAddresses.first)) continue
    throw new ServiceError(
      215,
      `The ACL rule ${rule} gives no TCP address: those of this gateway are ${tcpAddresses.shown}. Use bind:${tcpAddresses.anyPort}.`,
    )
  }
}

function viewInvite(
  invite: Invite,
  baseUrl: string,
  service: Invites,
  made: NewInvite | undefined,
): Omit<z.infer<typeof InviteView>, 'domain_is_new'> {
  const { id, createdAt, expiresAt } = invite
  const { joinString, holder } = made ?? {}
  return {
    id,
    uri: `${baseUrl}/invites/${id}`,
    created_at: timestamp(createdAt),
    description: invite.description,
    metadata: invite.metadata,
    owner_id: invite.ownerId,
    name: invite.name,
    tags: [...invite.tags],
    domain: invite.domain,
    acl: [...invite.acl],
    expires_at: timestamp(expiresAt),
    max_uses: invite.maxUses,
    uses: service.usesOf(invite),
    state: service.stateOf(invite),
    join_string: joinString?.reveal() ?? null,
    join_command: joinString ? `echo '${joinString.reveal()}' | ${JOIN}` : null,
    name_taken_by: holder
      ? { device_id: holder.device?.id ?? null, credential_ids: [...holder.authtokens] }
      : null,
    claims: service.claimsOf(invite, MAX_CLAIMS).map(viewClaim),
  }
}

function viewClaim({ at, name, hostname, address, credentialId }: InviteClaim) {
  return { at: timestamp(at), name, hostname, address, credential_id: credentialId }
}
