import { isIP, type LookupFunction } from 'node:net'
import { hostsFileHasLocalhost } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import type { ForwardRules } from './forward-rules.ts'
import { type ForwardTarget, formatForwardTarget, isSecure } from './forward-target.ts'
import type { Carrier } from './tunnel-protocol.ts'
import { UpstreamRelay, type WayToUpstream } from './upstream-relay.ts'

const PLAIN_HTTP: WayToUpstream = { carrier: 'http', verifyTls: true, http2: false }

interface Held {
  readonly relay: UpstreamRelay
  holders: number
}

/** Sees to it that what is dialled is what the rules have allowed, for names and paths each time anew. */
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
  hold(target: ForwardTarget, way = PLAIN_HTTP): () => void {
    const lookup = this.lookupFor(target)
    const isPath = 'path' in target
    if (!lookup && !isPath && !isSecure(target)) return () => {}
    const key = keyOf(target, way)
    const check = isPath ? () => this.#rules.check(target) : undefined
    const held = this.#held.get(key) ?? {
      relay: new UpstreamRelay({ ...way, target, lookup, check, log: this.#log }),
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
  async dialUrl(target: ForwardTarget, way = PLAIN_HTTP): Promise<string> {
    const relay = this.#held.get(keyOf(target, way))?.relay
    return (await relay?.dialUrl()) ?? urlOf(target, way.carrier)
  }

  /**
   * For `connect`: the addresses of the target's name that may be dialled, an error when there is
   * none. Undefined for what no name server is asked for: addresses, and localhost where a file has it.
   */
  lookupFor(target: ForwardTarget): LookupFunction | undefined {
    if ('path' in target) return undefined
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

function keyOf(target: ForwardTarget, way: WayToUpstream): string {
  const { carrier, verifyTls, tlsMinVersion, http2, proxyProtocol } = way
  const url = urlOf(target, carrier)
  return isSecure(target) ? [url, verifyTls, tlsMinVersion, http2, proxyProtocol].join(' ') : url
}

function urlOf(target: ForwardTarget, carrier: Carrier): string {
  return `${carrier}://${formatForwardTarget(target)}`
}
