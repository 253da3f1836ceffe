import { isIP, isIPv6 } from 'node:net'
import { parseListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { findDomainProblem, isBelow, isInternal } from '../records/domain-name.ts'
import { MAX_LISTED, type NameOwners } from './name-rules.ts'

/** Authtokens read at once. */
const PAGE = 100

/** An ACL rule that allows no name, and the fix. */
interface RuleWithoutEffect {
  readonly rule: string
  readonly msg: string
}

/**
 * Returns the ACL rules of an authtoken that are for reserved names but allow no name. TCP addresses and
 * internal names need no domain.
 */
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

/**
 * Why the account of a stored cloud endpoint no longer has its name, or not all of it. Undefined if it does.
 */
export function lostNameOf(
  { host, ownerId }: { readonly host: string; readonly ownerId: string | null },
  owners: Pick<NameOwners, 'useProblem' | 'reservationOf' | 'olderOverlap'>,
): string | undefined {
  if (owners.useProblem(host, { ownerId, isGranted: true }) !== undefined) {
    return `The name ${host} is not in a domain of the account of this endpoint. Give the domain to the account with a key of the gateway's owner, or delete the endpoint.`
  }
  const domain = owners.reservationOf(host)
  if (!domain || !owners.olderOverlap(domain)) return undefined
  return `The domain ${domain.domain} overlaps with an older domain of another account, which gets the visitors of the names that both cover. Give the names to this account with a key of the gateway's owner, or delete the endpoint.`
}

/**
 * Logs stored ACL rules and cloud endpoints that have lost their names by an upgrade, for the gateway's
 * owner.
 */
export function tellOfLostNames(
  stores: {
    readonly credentials: Pick<CredentialStore, 'page'>
    readonly cloudEndpointStore: {
      all(): readonly {
        readonly id: string
        readonly host: string
        readonly ownerId: string | null
      }[]
    }
  },
  owners: NameOwners,
  log: Logger,
): void {
  let rules = 0
  for (const credential of allOf(stores.credentials)) {
    for (const { rule, msg } of rulesWithoutEffect(credential, owners)) {
      rules += 1
      if (rules > MAX_LISTED) continue
      log.warn({ authtoken: credential.id, owner: credential.ownerId, rule }, msg)
    }
  }
  let endpoints = 0
  for (const endpoint of stores.cloudEndpointStore.all()) {
    const msg = lostNameOf(endpoint, owners)
    endpoints += msg === undefined ? 0 : 1
    if (msg === undefined || endpoints > MAX_LISTED) continue
    log.warn({ endpoint: endpoint.id, owner: endpoint.ownerId }, msg)
  }
  if (rules <= MAX_LISTED && endpoints <= MAX_LISTED) return
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
      /** IPv6 addresses without brackets. */
      readonly host: string
      /** Undefined: the rule is for a name, not for a TCP address. */
      readonly port: number | typeof ANY_PORT | undefined
      /** Whether endpoints bound there are reachable by other accounts. */
      readonly isShared: boolean
    }
  /** `key=value` rules are for labeled tunnels; they never allow a name. */
  | { readonly kind: 'label' }

/**
 * ACL of a credential: the names it may bind. One matching rule is enough. Without rules, all names of its
 * owner are allowed.
 *
 * | rule                            | allows                                                   |
 * |---------------------------------|----------------------------------------------------------|
 * | `*`, `bind:*`                   | all names                                                |
 * | `bind:<host>`, `bind:*.<host>`  | names                                                    |
 * | `bind:<host>:<port>` or `:*`    | TCP addresses; the port is optional for an IP address    |
 * | `bind:<key>=<value>`            | labeled tunnels                                          |
 * | `share:<host>`                  | an internal name that policies of all accounts can reach |
 */
export class Acl {
  readonly #rules: readonly Rule[]

  private constructor(rules: readonly Rule[]) {
    this.#rules = rules
  }

  /** Compiles rules that `isAclRule` has accepted. Other rules allow no name. */
  static of(texts: readonly string[]): Acl {
    const rules = texts.map(parseRule)
    // Keeps a list of only invalid rules from becoming an empty list, which allows all names.
    return new Acl(rules.map((rule) => rule ?? { kind: 'label' }))
  }

  /** Whether there are no rules. Then the credential is limited to names of its owner. */
  get isEmpty(): boolean {
    return this.#rules.length === 0
  }

  /** Whether a rule allows all names. */
  get hasAll(): boolean {
    return this.#rules.some(({ kind }) => kind === 'all')
  }

  /** Whether an HTTP endpoint on `host` (lower case; may be a wildcard) may be bound. */
  allows(host: string): boolean {
    return this.isEmpty || this.#rules.some((rule) => ruleAllows(rule, host))
  }

  /** Whether a TCP endpoint on `address` (`host:port`) may be bound. */
  allowsAddress(address: string): boolean {
    const { host = '', port = 0 } = parseListenAddress(address) ?? {}
    return this.isEmpty || this.#rules.some((rule) => ruleAllowsPort(rule, plainHost(host), port))
  }

  /** Whether a rule shares the internal endpoint on `host` with all accounts. */
  shares(host: string): boolean {
    return this.#rules.some(
      (rule) => rule.kind === 'host' && rule.isShared && ruleAllows(rule, host),
    )
  }

  /** Hosts in the rules that allow a host; undefined for a rule that allows all hosts. */
  hostsOfRulesFor(host: string): (string | undefined)[] {
    const rules = this.#rules.filter((rule) => ruleAllows(rule, host))
    return rules.map((rule) => (rule.kind === 'host' ? rule.host : undefined))
  }

  /** Names and wildcards in the rules, first rule first. */
  hosts(): string[] {
    return this.#rules.flatMap((rule) => (rule.kind === 'host' ? [rule.host] : []))
  }
}

/** Whether the text is a valid ACL rule. */
export function isAclRule(text: string): boolean {
  return parseRule(text) !== undefined
}

/** Name in a rule. */
export interface NameInRule {
  readonly host: string
  /** Port of a TCP address; `*`: any port. */
  readonly port: number | typeof ANY_PORT | undefined
  readonly isShared: boolean
}

/** Returns the name or wildcard in a rule and its use. Undefined if the rule contains no name. */
export function nameInRule(text: string): NameInRule | undefined {
  const rule = parseRule(text)
  return rule?.kind === 'host' ? rule : undefined
}

/** Whether a rule gives all TCP addresses of a host. Rules for internal names need no TCP listener. */
export function isForAnyPort(text: string): boolean {
  const name = nameInRule(text)
  return name?.port === ANY_PORT && !isInternal(name.host)
}

function ruleAllows(rule: Rule, host: string): boolean {
  if (rule.kind !== 'host') return rule.kind === 'all'
  // A rule with another port is only for a TCP address.
  if (rule.port === ANY_PORT) return false
  if (rule.port !== undefined && !DEFAULT_PORTS.includes(rule.port)) return false
  return rule.host === host || isBelow(host, rule.host)
}

function ruleAllowsPort(rule: Rule, host: string, port: number): boolean {
  if (rule.kind !== 'host') return rule.kind === 'all'
  // A rule for a name must not allow a port, and a rule for a port must not allow a name.
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

/** Normalizes the host, including the spelling of an IPv6 address. */
function plainHost(text: string): string {
  const host = text.toLowerCase().replace(IPV6, '$1')
  return isIPv6(host) ? new URL(`http://[${host}]`).hostname.replace(IPV6, '$1') : host
}
