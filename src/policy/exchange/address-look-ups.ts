import type { Account } from '../expression/cost/account.ts'
import type { AddressLocation, AddressNetwork, AddressTables } from './address-tables.ts'

/** What it takes to find where an address is, with the names of it in all languages, and whose. */
const LOCATION_STEPS = 560
const NETWORK_STEPS = 60

/** What tables say of addresses, looked up once for as long as it is the same address that is asked for. */
export class AddressLookUps {
  readonly #location = new LookUp<AddressLocation>(LOCATION_STEPS)
  readonly #network = new LookUp<AddressNetwork>(NETWORK_STEPS)

  /** Throws EvaluationError, as the other does, when the account has not enough. */
  locationOf(ip: string, tables: AddressTables, account: Account): AddressLocation | undefined {
    return this.#location.get(ip, () => tables.locationOf(ip), account)
  }

  networkOf(ip: string, tables: AddressTables, account: Account): AddressNetwork | undefined {
    return this.#network.get(ip, () => tables.networkOf(ip), account)
  }
}

class LookUp<T> {
  readonly #steps: number
  #ip: string | undefined
  #found: T | undefined

  constructor(steps: number) {
    this.#steps = steps
  }

  get(ip: string, look: () => T | undefined, account: Account): T | undefined {
    if (this.#ip === ip) return this.#found
    account.spend(this.#steps)
    this.#found = look()
    this.#ip = ip
    return this.#found
  }
}
