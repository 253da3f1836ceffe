import ipaddr from 'ipaddr.js'
import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import type { Database } from '../../../store/database.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../../records/service-error.ts'
import { ownedByGateway, refuseForeign } from '../common/caller.ts'
import { itemFields, Reference, requireChange, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import type { IpPolicy, IpPolicyRule, IpPolicyRuleStore, IpPolicyStore } from './ip-policy-store.ts'

const TEXT_CODES = [215, 215] as const
/** RFC 4291 section 2.5.5.2: where the IPv4 address begins in `::ffff:0:0/96`. */
const MAPPED_BITS = 96

const IpPolicyRuleCreate = z.strictObject({
  ...texts,
  cidr: z.string(),
  ip_policy_id: z.string(),
  action: z.enum(['allow', 'deny']).default('allow'),
})
const IpPolicyRuleUpdate = z.strictObject({ ...texts, cidr: z.string().optional() })
const IpPolicyRuleView = z.strictObject({
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
  cidr: z.string(),
  ip_policy: Reference,
  action: z.enum(['allow', 'deny']),
})

export interface IpPolicyRulesDeps {
  readonly database: Pick<Database, 'change'>
  readonly ipPolicies: IpPolicyStore
  readonly ipPolicyRules: IpPolicyRuleStore
  readonly ids: IdSource
  readonly clock: Clock
}

/** The address ranges of IP policies. */
export function ipPolicyRules({
  database,
  ipPolicies,
  ipPolicyRules: store,
  ids,
  clock,
}: IpPolicyRulesDeps): Resource<IpPolicyRule> {
  const view = ({ ipPolicyId, createdAt, ...rule }: IpPolicyRule, baseUrl: string) =>
    ({
      ...rule,
      uri: `${baseUrl}/ip_policy_rules/${rule.id}`,
      created_at: timestamp(createdAt),
      ip_policy: { id: ipPolicyId, uri: `${baseUrl}/ip_policies/${ipPolicyId}` },
    }) satisfies z.infer<typeof IpPolicyRuleView>

  function checkRule(rule: IpPolicyRule): void {
    checkTexts(rule, TEXT_CODES)
    checkCidr(rule.cidr)
    const peers = store.ofPolicy(rule.ipPolicyId)
    if (peers.some(({ id, cidr }) => id !== rule.id && cidr === rule.cidr)) {
      throw new ServiceError(1408, `The IP policy already has a rule for ${rule.cidr}.`)
    }
  }

  return {
    path: 'ip_policy_rules',
    noun: 'IpPolicyRule',
    about: 'IP ranges of IP policies.',
    collection: 'ip_policy_rules',
    prefix: 'ipr',
    schema: IpPolicyRuleView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ownedByGateway,
    checkChange: (caller) => refuseForeign(caller, 'IP policies'),
    create: withBody({ IpPolicyRuleCreate }, async (body, { baseUrl }) => {
      const { description = '', metadata = '', ...request } = body
      const { action, ip_policy_id: ipPolicyId } = request
      const cidr = request.cidr.toLowerCase()
      const createdAt = clock.now()
      const id = ids.next('ipr')
      const rule = { id, ipPolicyId, cidr, action, description, metadata, createdAt }
      const keep = () => {
        if (!ipPolicies.get(ipPolicyId))
          throw new ServiceError(1414, 'The IP policy does not exist.')
        checkRule(rule)
        store.insert(rule)
      }
      await database.change(keep, { concludes: id })
      return view(rule, baseUrl)
    }),
    update: withBody({ IpPolicyRuleUpdate }, (change, { item: { id } }) => {
      requireChange(change, 1401, 'cidr, description or metadata')
      const keep = () => {
        const rule = present(store.get(id))
        const { description = rule.description, metadata = rule.metadata } = change
        const cidr = (change.cidr ?? rule.cidr).toLowerCase()
        const updated = { ...rule, cidr, description, metadata }
        checkRule(updated)
        store.replace(updated)
        return updated
      }
      return database.change(keep, { concludes: id })
    }),
    remove: async ({ id }) => {
      await database.change(() => store.delete(id), { concludes: id, mayUseReserve: true })
    },
  }
}

/** Throws ServiceError 1406, 1409 or 1413. */
function checkCidr(cidr: string): void {
  if (ipaddr.IPv4.isValidFourPartDecimal(cidr) || ipaddr.IPv6.isValid(cidr)) {
    const mask = cidr.includes(':') ? 128 : 32
    throw new ServiceError(
      1413,
      `${cidr} has no prefix length. Write ${cidr}/${mask} for a single address.`,
    )
  }
  if (!ipaddr.isValidCIDR(cidr)) throw new ServiceError(1406, 'The CIDR is not valid.')
  const [address, bits] = ipaddr.parseCIDR(cidr)
  if (address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() && bits >= MAPPED_BITS) {
    // Connections over IPv4 count as IPv4, so it would never match.
    throw new ServiceError(1406, 'Write IPv4 ranges in IPv4 notation, such as 10.0.0.0/8.')
  }
  const network =
    address.kind() === 'ipv4'
      ? ipaddr.IPv4.networkAddressFromCIDR(cidr)
      : ipaddr.IPv6.networkAddressFromCIDR(cidr)
  const lowest = `${network}/${bits}`
  if (lowest === cidr) return
  throw new ServiceError(1409, `A CIDR must start with its lowest address: ${lowest}.`)
}

const IpPolicyCreate = z.strictObject(texts)
const IpPolicyUpdate = IpPolicyCreate
const IpPolicyView = z.strictObject({
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
})

export interface IpPoliciesDeps {
  readonly database: Pick<Database, 'change'>
  readonly ipPolicies: IpPolicyStore
  readonly ids: IdSource
  readonly clock: Clock
}

/** Named sets of address rules, for `restrict-ips`. */
export function ipPolicies({
  database,
  ipPolicies: store,
  ids,
  clock,
}: IpPoliciesDeps): Resource<IpPolicy> {
  const view = ({ createdAt, ...policy }: IpPolicy, baseUrl: string) =>
    ({
      ...policy,
      uri: `${baseUrl}/ip_policies/${policy.id}`,
      created_at: timestamp(createdAt),
    }) satisfies z.infer<typeof IpPolicyView>
  return {
    path: 'ip_policies',
    noun: 'IpPolicy',
    about: 'Lists of IP ranges for policies and authtokens.',
    collection: 'ip_policies',
    prefix: 'ipp',
    schema: IpPolicyView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ownedByGateway,
    checkChange: (caller) => refuseForeign(caller, 'IP policies'),
    create: withBody({ IpPolicyCreate }, async (body, { baseUrl }) => {
      const { description = '', metadata = '' } = body
      checkTexts({ description, metadata }, TEXT_CODES)
      const policy = { id: ids.next('ipp'), description, metadata, createdAt: clock.now() }
      await database.change(() => store.insert(policy), { concludes: policy.id })
      return view(policy, baseUrl)
    }),
    update: withBody({ IpPolicyUpdate }, (change, { item: { id } }) => {
      requireChange(change, 1400, 'description or metadata')
      const keep = () => {
        const policy = present(store.get(id))
        const { description = policy.description, metadata = policy.metadata } = change
        checkTexts({ description, metadata }, TEXT_CODES)
        const updated = { ...policy, description, metadata }
        store.replace(updated)
        return updated
      }
      return database.change(keep, { concludes: id })
    }),
    remove: async ({ id }) => {
      await database.change(() => store.delete(id), { concludes: id, mayUseReserve: true })
    },
  }
}
