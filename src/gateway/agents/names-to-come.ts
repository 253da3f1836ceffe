import type { Clock } from '../../base/clock.ts'
import type { DeviceReturn } from '../endpoints/away-name.ts'
import type { AgentIdentity } from '../endpoints/connected-agent.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { AgentLimits } from './agent-deps.ts'

/** Names that went away after the device had connected are looked for no more often. */
const LOOK_MS = 1_000

export interface NamesToComeOptions {
  readonly registry: EndpointRegistry
  readonly identity: AgentIdentity
  readonly limits: Pick<AgentLimits, 'returnMs' | 'progressMs'>
  readonly clock: Clock
}

/**
 * The names that a device had and has not bound again on its new connection: visitors wait for them while
 * the device goes through its names. An agent of ours says when it has done so. Any other has done so when it
 * binds nothing for a while.
 */
export class NamesToCome {
  readonly #options: NamesToComeOptions
  readonly #ending = new AbortController()
  #device: DeviceReturn | undefined
  /** Monotonic. */
  #lookedAt = Number.NEGATIVE_INFINITY

  constructor(options: NamesToComeOptions) {
    this.#options = options
  }

  /** The device has connected, or says by a bind that it goes on. */
  goOn(): void {
    if (this.#ending.signal.aborted) return
    const { registry, identity, clock } = this.#options
    const now = clock.monotonic()
    if (this.#device && now < this.#lookedAt + LOOK_MS) {
      this.#device.goOn(now + this.#quietMs)
      return
    }
    const isFirst = this.#device === undefined
    const found = registry.startReturn(identity, this.#quietMs)
    this.#lookedAt = now
    if (found !== this.#device) {
      if (this.#device) registry.loseReturn(this.#device)
      found.sessions += 1
      this.#device = found
    }
    if (isFirst && !identity.tellsComplete) void this.#awaitQuiet()
  }

  /** The device has bound all names that it wants: nobody has the others. */
  complete(): void {
    // What went away since the last look is among them.
    this.#lookedAt = Number.NEGATIVE_INFINITY
    this.goOn()
    if (this.#device) this.#options.registry.endReturn(this.#device)
  }

  /** The connection has ended. */
  stop(): void {
    if (this.#ending.signal.aborted) return
    this.#ending.abort()
    if (this.#device) this.#options.registry.loseReturn(this.#device)
  }

  get #quietMs(): number {
    const { identity, limits } = this.#options
    return identity.tellsComplete ? limits.progressMs : limits.returnMs
  }

  async #awaitQuiet(): Promise<void> {
    const { clock, registry, identity } = this.#options
    try {
      for (;;) {
        const leftMs = (this.#device?.until ?? 0) - clock.monotonic()
        if (leftMs <= 0) break
        await clock.sleep(leftMs, this.#ending.signal)
      }
    } catch {
      return
    }
    // Others may have the same authtoken as a device that does not say which it is.
    if (this.#device && identity.deviceId !== undefined) registry.endReturn(this.#device)
  }
}
