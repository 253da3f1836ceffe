import { Resolver } from 'node:dns/promises'
import { isIP } from 'node:net'
import type { Clock } from '../../../base/clock.ts'
import { normalName } from '../certificate-file.ts'

const TIMEOUT_MS = 2_000
const TRIES = 2
/** Addresses of the gateway's own names are asked for again after this time. */
const KEPT_MS = 60_000
/** Addresses that a sentence lists. */
const MAX_LISTED = 4
/** Codes of a resolver for a name without addresses of a family. */
const NONE: ReadonlySet<string> = new Set(['ENODATA', 'ENOTFOUND'])

export interface OwnAddressesOptions {
  /** Names and addresses that lead to this gateway, or to another gateway of the cluster. */
  readonly hosts: () => readonly string[]
  /** DNS servers, `address` or `address:port`; empty: the machine's resolvers. */
  readonly servers: readonly string[]
  readonly clock: Clock
}

/** Checks by DNS whether visitors of a name reach this gateway. */
export class OwnAddresses {
  readonly #options: OwnAddressesOptions
  #known: { readonly addresses: Promise<ReadonlySet<string>>; readonly until: number } | undefined

  constructor(options: OwnAddressesOptions) {
    this.#options = options
  }

  /**
   * Why a name does not lead to this gateway; undefined if it does. All its addresses must, because an
   * authority may choose any of them.
   */
  async problemOf(name: string): Promise<string | undefined> {
    const own = await this.#own()
    const { addresses, code } = await this.#resolve(name)
    if (addresses.length === 0) {
      const record = own.size > 0 ? `: ${listed(own)}` : ''
      return `DNS has no address for ${name} (${code}). Add a record that leads to this gateway${record}.`
    }
    const foreign = addresses.filter((address) => !own.has(address))
    if (foreign.length === 0) return undefined
    const known = own.size > 0 ? `The gateway has ${listed(own)}. ` : ''
    return `DNS leads ${name} to ${listed(foreign)}, which the gateway does not know as its own. ${known}Correct the DNS record, or add the address to GATEWAY_PUBLIC_NAMES.`
  }

  #own(): Promise<ReadonlySet<string>> {
    const now = this.#options.clock.monotonic()
    if (!this.#known || now >= this.#known.until) {
      this.#known = { addresses: this.#resolveOwn(), until: now + KEPT_MS }
    }
    return this.#known.addresses
  }

  async #resolveOwn(): Promise<ReadonlySet<string>> {
    const hosts = [...new Set(this.#options.hosts())]
    const found = await Promise.all(
      hosts.map(async (host) =>
        isIP(host) === 0 ? (await this.#resolve(host)).addresses : [normalName(host)],
      ),
    )
    return new Set(found.flat())
  }

  /** `code`: reason of the resolver if there are no addresses. Never rejects. */
  async #resolve(name: string): Promise<{ addresses: string[]; code: string }> {
    const { servers } = this.#options
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES })
    if (servers.length > 0) resolver.setServers(servers)
    const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
    const addresses = answers.flatMap((answer) =>
      answer.status === 'fulfilled' ? answer.value.map(normalName) : [],
    )
    const codes = answers.flatMap((answer) =>
      answer.status === 'rejected' ? [String(answer.reason?.code ?? 'EUNKNOWN')] : [],
    )
    // A family without an answer may have foreign addresses.
    const unsure = codes.find((code) => !NONE.has(code))
    if (unsure !== undefined) return { addresses: [], code: unsure }
    return { addresses, code: codes[0] ?? 'ENODATA' }
  }
}

function listed(addresses: Iterable<string>): string {
  const all = [...addresses]
  const more = all.length - MAX_LISTED
  return all.slice(0, MAX_LISTED).join(', ') + (more > 0 ? ` and ${more} more` : '')
}
