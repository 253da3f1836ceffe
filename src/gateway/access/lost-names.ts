import type { Logger } from '../../base/logger.ts'
import type { CloudEndpointStore, StoredCloudEndpoint } from '../records/cloud-endpoint-store.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { isInternal } from '../records/domain-name.ts'
import { nameInRule } from './acl.ts'
import { MOST_TOLD, type NameOwners } from './name-owners.ts'

/** Authtokens that are read at once. */
const PAGE = 100

/** An ACL rule that gives no name, and the fix. */
export interface RuleWithoutEffect {
  readonly rule: string
  readonly msg: string
}

/** The ACL rules of an authtoken that are for reserved names, and give none of them. TCP addresses and internal names need no domain. */
export function rulesWithoutEffect(
  { ownerId, acl, granted }: Pick<Credential, 'ownerId' | 'acl' | 'granted'>,
  owners: Pick<NameOwners, 'givesNothing'>,
): RuleWithoutEffect[] {
  return acl.flatMap((rule) => {
    const name = nameInRule(rule)
    if (!name || name.port !== undefined || isInternal(name.host)) return []
    const { host } = name
    if (!owners.givesNothing(host, { ownerId, isGranted: granted.includes(rule) })) return []
    const msg = `The rule gives no names: its account has no domain at or below ${host}, and ${host} is not inside a domain that the gateway's owner gave with this rule. Reserve a domain for the account, or let the gateway's owner set a rule inside a domain of the gateway.`
    return [{ rule, msg }]
  })
}

/** Why the name of a stored cloud endpoint is not, or not entirely, its account's; undefined when it is. */
export function lostNameOf(
  { host, ownerId }: Pick<StoredCloudEndpoint, 'host' | 'ownerId'>,
  owners: Pick<NameOwners, 'useProblem' | 'reservationOf' | 'olderOverlap'>,
): string | undefined {
  if (owners.useProblem(host, { ownerId, isGranted: true }) !== undefined) {
    return `The name ${host} is not in a domain of the account of this endpoint. Give the domain to the account with a key of the gateway's owner, or delete the endpoint.`
  }
  const domain = owners.reservationOf(host)
  if (!domain || !owners.olderOverlap(domain)) return undefined
  return `The domain ${domain.domain} overlaps with an older domain of another account, which gets the visitors of the names that both cover. Give the names to this account with a key of the gateway's owner, or delete the endpoint.`
}

/** Tells the gateway's owner of stored ACL rules and cloud endpoints that an upgrade has left without names. */
export function tellOfLostNames(
  stores: {
    readonly credentials: Pick<CredentialStore, 'page'>
    readonly cloudEndpointStore: Pick<CloudEndpointStore, 'all'>
  },
  owners: NameOwners,
  log: Logger,
): void {
  let rules = 0
  for (const credential of allOf(stores.credentials)) {
    for (const { rule, msg } of rulesWithoutEffect(credential, owners)) {
      rules += 1
      if (rules > MOST_TOLD) continue
      log.warn({ authtoken: credential.id, owner: credential.ownerId, rule }, msg)
    }
  }
  let endpoints = 0
  for (const endpoint of stores.cloudEndpointStore.all()) {
    const msg = lostNameOf(endpoint, owners)
    endpoints += msg === undefined ? 0 : 1
    if (msg === undefined || endpoints > MOST_TOLD) continue
    log.warn({ endpoint: endpoint.id, owner: endpoint.ownerId }, msg)
  }
  if (rules <= MOST_TOLD && endpoints <= MOST_TOLD) return
  log.warn(
    { rules, endpoints },
    'more ACL rules and cloud endpoints have lost names than are listed',
  )
}

function* allOf(credentials: Pick<CredentialStore, 'page'>): Generator<Credential> {
  let beforeId: string | undefined
  for (;;) {
    const page = credentials.page({ limit: PAGE, beforeId })
    yield* page
    if (page.length < PAGE) return
    beforeId = page.at(-1)?.id
  }
}
