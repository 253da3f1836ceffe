import { isIP, type LookupFunction } from 'node:net'
import type { Logger } from '../../base/logger.ts'
import { hostsFileHasLocalhost } from '../../base/net/localhost.ts'
import type { ForwardRules } from './forward-rules.ts'
import { type ForwardTarget, formatForwardTarget } from './forward-target.ts'
import type { Carrier } from './tunnel-protocol.ts'
import { UpstreamRelay } from './upstream-relay.ts'

interface Held {
  readonly relay: UpstreamRelay
  holders: number
}

/** Sees to it that what is dialled is what the rules have allowed, for names each time anew. */
export class UpstreamDialer {
  readonly #rules: ForwardRules
  readonly #log: Logger
  /** The SDK finds it by itself, which saves a hop. */
  readonly #systemHasLocalhost: boolean
  readonly #held = new Map<string, Held>()

  constructor(rules: ForwardRules, log: Logger, systemHasLocalhost = hostsFileHasLocalhost()) {
    this.#rules = rules
    this.#log = log
    this.#systemHasLocalhost = systemHasLocalhost
  }

  /** Keeps what a target needs until the returned function is called. */
  hold(target: ForwardTarget, carrier: Carrier = 'http'): () => void {
    const lookup = this.lookupFor(target)
    if (!lookup) return () => {}
    const key = urlOf(target, carrier)
    const held = this.#held.get(key) ?? {
      relay: new UpstreamRelay({ target, lookup, carrier, log: this.#log }),
      holders: 0,
    }
    held.holders += 1
    this.#held.set(key, held)
    return () => {
      held.holders -= 1
      if (held.holders > 0) return
      this.#held.delete(key)
      held.relay.close()
    }
  }

  /** What the SDK is to dial for a target that is held. */
  async dialUrl(target: ForwardTarget, carrier: Carrier = 'http'): Promise<string> {
    const url = urlOf(target, carrier)
    return (await this.#held.get(url)?.relay.dialUrl()) ?? url
  }

  /**
   * For `connect`: the addresses of the target's name that may be dialled, an error when there is
   * none. Undefined for what no name server is asked for: addresses, and localhost where a file has it.
   */
  lookupFor(target: ForwardTarget): LookupFunction | undefined {
    const { host } = target
    if (isIP(host) !== 0 || (host === 'localhost' && this.#systemHasLocalhost)) return undefined
    return (_hostname, { all }, callback) => {
      this.#rules.check(target).then(
        (addresses) => {
          const found = addresses.map((address) => ({ address, family: isIP(address) }))
          const [first] = found
          if (!first) callback(new Error(`${target.host} has no address`), '')
          else if (all) callback(null, found)
          else callback(null, first.address, first.family)
        },
        (error) => callback(error, ''),
      )
    }
  }
}

function urlOf(target: ForwardTarget, carrier: Carrier): string {
  return `${carrier}://${formatForwardTarget(target)}`
}
