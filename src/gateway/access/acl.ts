import { isIP, isIPv6 } from 'node:net'
import { parseListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import type { CloudEndpointStore, StoredCloudEndpoint } from '../records/cloud-endpoint-store.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { findDomainProblem, isBelow, isInternal } from '../records/domain-name.ts'
import { MOST_TOLD, type NameOwners } from './name-rules.ts'

/** Authtokens that are read at once. */
const PAGE = 100

/** An ACL rule that gives no name, and the fix. */
interface RuleWithoutEffect {
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

const MAX_RULE = 512
const VERB = /^(bind|share):(.*)$/s
const LABEL = /^(?:\*|[\w.:/-]{1,128})=(?:\*|[\w.:/-]{1,128})$/
const ADDRESS = /^(.+):(\d{1,5}|\*)$/
const ANY_PORT = '*'
const IPV6 = /^\[(.+)\]$/
const DEFAULT_PORTS = [80, 443]

type Rule =
  | { readonly kind: 'all' }
  | {
      readonly kind: 'host'
      /** An IPv6 address stands without brackets. */
      readonly host: string
      /** Undefined: it speaks of a name, and of no TCP address. */
      readonly port: number | typeof ANY_PORT | undefined
      /** Whether other accounts find what is bound there. */
      readonly isShared: boolean
    }
  /** `key=value` rules are for labeled tunnels; they never allow a name. */
  | { readonly kind: 'label' }

/**
 * What a credential may bind: `*`, `bind:*`, names as `bind:<host>` and `bind:*.<host>`, TCP addresses as
 * `bind:<host>:<port>` and `bind:<host>:*`, where a host that is an IP address needs no port,
 * `bind:<key>=<value>`, and `share:<host>` for an internal name that policies of all accounts find.
 * One rule that fits is enough; without any rule there is no limit to what its owner has.
 */
export class Acl {
  readonly #rules: readonly Rule[]

  private constructor(rules: readonly Rule[]) {
    this.#rules = rules
  }

  /** Compiles rules that `isAclRule` has accepted; others are dropped, so they allow nothing. */
  static of(texts: readonly string[]): Acl {
    const rules = texts.map(parseRule)
    // A list of nothing but bad rules must not become the empty list, which allows everything.
    return new Acl(rules.map((rule) => rule ?? { kind: 'label' }))
  }

  /** Without rules nothing is granted beyond what the owner has. */
  get isEmpty(): boolean {
    return this.#rules.length === 0
  }

  /** True when a rule allows all names. */
  get hasAll(): boolean {
    return this.#rules.some(({ kind }) => kind === 'all')
  }

  /** True when an HTTP endpoint on `host` (lower case; may be a wildcard) may be bound. */
  allows(host: string): boolean {
    return this.isEmpty || this.#rules.some((rule) => ruleAllows(rule, host))
  }

  /** True when a TCP endpoint on `address` (`host:port`) may be bound. */
  allowsAddress(address: string): boolean {
    const { host = '', port = 0 } = parseListenAddress(address) ?? {}
    return this.isEmpty || this.#rules.some((rule) => ruleAllowsPort(rule, plainHost(host), port))
  }

  /** True when a rule shares the internal endpoint on `host` with all accounts. */
  shares(host: string): boolean {
    return this.#rules.some(
      (rule) => rule.kind === 'host' && rule.isShared && ruleAllows(rule, host),
    )
  }

  /** What the rules that allow a host spell out; undefined for a rule that allows all hosts. */
  hostsOfRulesFor(host: string): (string | undefined)[] {
    const rules = this.#rules.filter((rule) => ruleAllows(rule, host))
    return rules.map((rule) => (rule.kind === 'host' ? rule.host : undefined))
  }

  /** The wildcards and names that the rules spell out, first rule first. */
  hosts(): string[] {
    return this.#rules.flatMap((rule) => (rule.kind === 'host' ? [rule.host] : []))
  }
}

/** True when the text is a rule of the grammar. */
export function isAclRule(text: string): boolean {
  return parseRule(text) !== undefined
}

/** What a rule spells out. */
export interface NameInRule {
  readonly host: string
  /** Of a TCP address; `*` is any. */
  readonly port: number | typeof ANY_PORT | undefined
  readonly isShared: boolean
}

/** The name or wildcard that a rule spells out, and what for; undefined when it spells out none. */
export function nameInRule(text: string): NameInRule | undefined {
  const rule = parseRule(text)
  return rule?.kind === 'host' ? rule : undefined
}

function ruleAllows(rule: Rule, host: string): boolean {
  if (rule.kind !== 'host') return rule.kind === 'all'
  // A rule with another port speaks of a TCP address alone.
  if (rule.port === ANY_PORT) return false
  if (rule.port !== undefined && !DEFAULT_PORTS.includes(rule.port)) return false
  return rule.host === host || isBelow(host, rule.host)
}

function ruleAllowsPort(rule: Rule, host: string, port: number): boolean {
  if (rule.kind !== 'host') return rule.kind === 'all'
  // A rule for a name must not open a port, nor one for ports a name.
  if (rule.port !== ANY_PORT && rule.port !== port) return false
  return rule.host === host || isBelow(host, rule.host)
}

function parseRule(text: string): Rule | undefined {
  if (text === '*') return { kind: 'all' }
  const [, verb, value = ''] = VERB.exec(text) ?? []
  if (verb === undefined || text.length > MAX_RULE) return undefined
  const isShared = verb === 'share'
  // A name is shared with all its ports.
  if (isShared && (value.includes(':') || !isInternal(value.toLowerCase()))) return undefined
  if (value === '*') return { kind: 'all' }
  if (value.includes('=')) return LABEL.test(value) ? { kind: 'label' } : undefined
  const [, name = value, port] = isIP(value) ? [] : (ADDRESS.exec(value) ?? [])
  const host = plainHost(name)
  const isAddress = isIP(host) !== 0
  if (!isAddress && findDomainProblem(host)) return undefined
  if (port === undefined) return { kind: 'host', host, port: isAddress ? ANY_PORT : port, isShared }
  if (port === ANY_PORT) return { kind: 'host', host, port, isShared }
  return Number(port) > 65_535 ? undefined : { kind: 'host', host, port: Number(port), isShared }
}

/** An address of IPv6 in one form, however it is written. */
function plainHost(text: string): string {
  const host = text.toLowerCase().replace(IPV6, '$1')
  return isIPv6(host) ? new URL(`http://[${host}]`).hostname.replace(IPV6, '$1') : host
}
