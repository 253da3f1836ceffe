import { type AddressRanges, parseCidr } from '../../../base/net/network.ts'
import type { IpPolicyRule, IpPolicyRuleStore, IpPolicyStore } from './ip-policy-store.ts'

interface IpPolicyRangesOptions {
  readonly ipPolicies: IpPolicyStore
  readonly ipPolicyRules: IpPolicyRuleStore
}

/** Caches IP policies as address ranges for restrict-ips, until a policy or rule changes. */
export class IpPolicyRanges {
  readonly #policies: IpPolicyStore
  readonly #rules: IpPolicyRuleStore
  readonly #kept = new Map<string, AddressRanges>()
  #versions = ''

  constructor({ ipPolicies, ipPolicyRules }: IpPolicyRangesOptions) {
    this.#policies = ipPolicies
    this.#rules = ipPolicyRules
  }

  /** Returns undefined if there is no such policy. */
  of(id: string): AddressRanges | undefined {
    const versions = `${this.#policies.version} ${this.#rules.version}`
    if (versions !== this.#versions) this.#kept.clear()
    this.#versions = versions
    const kept = this.#kept.get(id)
    if (kept || !this.#policies.get(id)) return kept
    const rules = this.#rules.ofPolicy(id)
    const ranges = { allow: rangesOf(rules, 'allow'), deny: rangesOf(rules, 'deny') }
    this.#kept.set(id, ranges)
    return ranges
  }
}

function rangesOf(rules: readonly IpPolicyRule[], action: IpPolicyRule['action']) {
  return rules.flatMap((rule) => (rule.action === action ? (parseCidr(rule.cidr) ?? []) : []))
}
