import {
  type EndpointAddress,
  type EndpointProtocol,
  type Entrance,
  entranceOf,
} from '../records/endpoint-protocol.ts'
import { HostTable, type NameHolder, type NameState } from './host-table.ts'

/** Who has which address: at each entrance the hosts are others'. */
export class AddressTable {
  readonly #hosts: Readonly<Record<Entrance, HostTable>> = {
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

  /** Who has exactly this address. */
  get({ protocol, host }: EndpointAddress): NameHolder | undefined {
    return this.#at(protocol).get(host)
  }

  has(state: NameState): boolean {
    return this.#at(state.protocol).has(state)
  }

  /** False when this very one was not there. */
  remove(state: NameState): boolean {
    return this.#at(state.protocol).remove(state)
  }

  /** Who has an address or a wildcard above it, the nearest first; see `HostTable.holdersFor`. */
  holdersFor({ protocol, host }: EndpointAddress, now: () => number): Generator<NameHolder> {
    return this.#at(protocol).holdersFor(host, now)
  }

  *all(): Generator<NameState> {
    yield* this.#hosts.http.all()
    yield* this.#hosts.https.all()
    yield* this.#hosts.tcp.all()
  }

  /** At one entrance. */
  allAt(entrance: Entrance): Iterable<NameState> {
    return this.#hosts[entrance].all()
  }

  #at(protocol: EndpointProtocol): HostTable {
    return this.#hosts[entranceOf(protocol)]
  }
}
