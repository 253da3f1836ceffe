import {
  type EndpointAddress,
  type EndpointProtocol,
  type IngressType,
  ingressTypeOf,
} from '../records/endpoint-protocol.ts'
import type { DisconnectedName } from './disconnected-name.ts'
import type { Endpoint } from './endpoint.ts'
import { EndpointPool, isPooled } from './endpoint-pool.ts'

/** Holders of addresses. Each ingress type has its own hosts. */
export class AddressTable {
  readonly #hosts: Readonly<Record<IngressType, HostTable>> = {
    http: new HostTable(),
    https: new HostTable(),
    tcp: new HostTable(),
  }

  get size(): number {
    const { http, https, tcp } = this.#hosts
    return http.size + https.size + tcp.size
  }

  set(state: NameState): void {
    this.#at(state.protocol).set(state)
  }

  /** Holder of exactly this address. */
  get({ protocol, host }: EndpointAddress): NameHolder | undefined {
    return this.#at(protocol).get(host)
  }

  has(state: NameState): boolean {
    return this.#at(state.protocol).has(state)
  }

  /** Returns false if this very object was not present. */
  remove(state: NameState): boolean {
    return this.#at(state.protocol).remove(state)
  }

  /** Holders of an address and of the wildcards above it, the nearest first; see `HostTable.holdersFor`. */
  holdersFor({ protocol, host }: EndpointAddress, now: () => number): Generator<NameHolder> {
    return this.#at(protocol).holdersFor(host, now)
  }

  *all(): Generator<NameState> {
    yield* this.#hosts.http.all()
    yield* this.#hosts.https.all()
    yield* this.#hosts.tcp.all()
  }

  /** All names at one ingress type. */
  allAt(entrance: IngressType): Iterable<NameState> {
    return this.#hosts[entrance].all()
  }

  #at(protocol: EndpointProtocol): HostTable {
    return this.#hosts[ingressTypeOf(protocol)]
  }
}

/** State of a name: an online endpoint, or a disconnected name. */
export type NameState = Endpoint | DisconnectedName

/** Entry of a host table: one name, or the pool that shares it. */
export type NameHolder = NameState | EndpointPool

/** Holders of hosts and wildcards. Each name has one holder, which may be a pool. */
export class HostTable {
  readonly #exact = new Map<string, NameHolder>()
  /** Keyed by the part after `*`, with its dot: `.example.com`. */
  readonly #wildcards = new Map<string, NameHolder>()

  get size(): number {
    return this.#exact.size + this.#wildcards.size
  }

  /** Takes the host, or joins the pool that has it. */
  set(state: NameState): void {
    const [hosts, key] = this.#placeOf(state.host)
    const isMember = state.type !== 'disconnected' && isPooled(state)
    const holder = hosts.get(key)
    if (isMember && holder?.type === 'pool') holder.add(state)
    else hosts.set(key, isMember ? new EndpointPool(state) : state)
  }

  /** Holder of exactly this host. */
  get(host: string): NameHolder | undefined {
    const [hosts, key] = this.#placeOf(host)
    return hosts.get(key)
  }

  has(state: NameState): boolean {
    const holder = this.get(state.host)
    return holder?.type === 'pool'
      ? state.type !== 'disconnected' && holder.has(state)
      : holder === state
  }

  /** Returns false if this very object was not present. */
  remove(state: NameState): boolean {
    const [hosts, key] = this.#placeOf(state.host)
    const holder = hosts.get(key)
    if (holder?.type !== 'pool') return holder === state && hosts.delete(key)
    const isRemoved = state.type !== 'disconnected' && holder.remove(state)
    if (holder.size === 0) hosts.delete(key)
    return isRemoved
  }

  /**
   * Holders of a host and of the wildcards above it, the nearest first. Leaves out names forgotten by `now`.
   */
  *holdersFor(host: string, now: () => number): Generator<NameHolder> {
    for (const holder of this.#statesFor(host)) {
      if (holder.type !== 'disconnected' || now() < holder.forgottenAt) yield holder
    }
  }

  /** Each member of a pool separately. */
  *all(): Generator<NameState> {
    for (const hosts of [this.#exact, this.#wildcards]) {
      for (const holder of hosts.values()) {
        if (holder.type === 'pool') yield* holder
        else yield holder
      }
    }
  }

  *#statesFor(host: string): Generator<NameHolder> {
    const exact = this.#exact.get(host)
    if (exact) yield exact
    if (this.#wildcards.size === 0) return
    // Starts at 1: with a dot at 0, the star would stand for an empty label.
    for (let dot = host.indexOf('.', 1); dot !== -1; dot = host.indexOf('.', dot + 1)) {
      const wildcard = this.#wildcards.get(host.slice(dot))
      if (wildcard) yield wildcard
    }
  }

  #placeOf(host: string): [Map<string, NameHolder>, string] {
    return host.startsWith('*.') ? [this.#wildcards, host.slice(1)] : [this.#exact, host]
  }
}
