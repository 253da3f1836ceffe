import type { Clock } from '../../base/clock.ts'
import { networkOf } from '../../base/limit/network.ts'
import { TokenBuckets } from '../../base/limit/token-buckets.ts'
import type { DeviceJournal } from './device-journal.ts'
import { type RefusedSignIn, refusedEvent } from './device-reports.ts'

/** Of one device, authtoken or address. */
const ONE_AN_HOUR = { capacity: 1, refillPerS: 1 / 3_600, maxKeys: 10_000 }
/** Of all together, since strangers can be refused, too … */
const REFUSALS = { capacity: 30, refillPerS: 1 / 10, maxKeys: 1 }
/** … and of one address, so that a single stranger does not use it up. */
const REFUSALS_OF_ADDRESS = { capacity: 10, refillPerS: 1 / 60, maxKeys: 1_000 }

/** Tells of who wanted to sign in and was refused, as seldom as people want to hear of it. */
export class RefusedSignIns {
  readonly #journal: DeviceJournal
  readonly #clock: Clock
  readonly #seldom: TokenBuckets
  readonly #all: TokenBuckets
  readonly #ofAddress: TokenBuckets

  constructor(journal: DeviceJournal, clock: Clock) {
    this.#journal = journal
    this.#clock = clock
    this.#seldom = new TokenBuckets({ ...ONE_AN_HOUR, clock })
    this.#all = new TokenBuckets({ ...REFUSALS, clock })
    this.#ofAddress = new TokenBuckets({ ...REFUSALS_OF_ADDRESS, clock })
  }

  /** Whether another process with the identity of a device is to be told of again. */
  isNewDuplicate(identityKey: string): boolean {
    return this.#seldom.take(`duplicate ${identityKey}`) === 0
  }

  tell(signIn: RefusedSignIn): void {
    const { ownerId, deviceId, ip } = signIn
    if (this.#seldom.take(`refused ${deviceId ?? ip}`) > 0) return
    if (this.#ofAddress.take(networkOf(ip)) > 0 || this.#all.take('all') > 0) return
    const device =
      deviceId === undefined ? undefined : this.#journal.findByDevice(ownerId, deviceId)
    this.#journal.tell(refusedEvent(signIn, device, this.#clock.now()))
  }
}
