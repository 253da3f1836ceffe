import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { UnconfirmedNameError } from '../access/name-claims.ts'
import type { AwaitedListener, DeviceReturn } from '../endpoints/disconnected-name.ts'
import type { AgentIdentity } from '../endpoints/endpoint.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { OtherGateways } from '../ports/other-gateways.ts'
import type { AgentLimits } from './agent-deps.ts'
import { awaitedNotice, retryNotice } from './agent-notice.ts'

/** Minimum time between two checks for names that were lost after the device had connected. */
const POLL_MS = 1_000
/** Minimum time between two notices of names that visitors wait for. */
const TELL_MS = 100

const COMPLETE = 'device-complete'
const CompleteSchema = z.strictObject({
  ownerId: z.string().nullable(),
  credentialId: z.string(),
  deviceId: z.string().optional(),
  instance: z.string().optional(),
})

/** Answers other gateways that report a completed device; see `NamesToCome.complete`. */
export function answerCompletions(
  others: Pick<OtherGateways, 'on'>,
  registry: Pick<EndpointRegistry, 'endReturnElsewhere'>,
): void {
  others.on(COMPLETE, (of) => registry.endReturnElsewhere(CompleteSchema.parse(of)))
}

export interface NamesToComeOptions {
  readonly registry: EndpointRegistry
  readonly identity: AgentIdentity
  readonly limits: Pick<AgentLimits, 'returnMs' | 'progressMs'>
  readonly others: Pick<OtherGateways, 'all' | 'ask'>
  readonly clock: Clock
  /**
   * Sends a notice to the agent by an Update command; never rejects. Unset for agents that would update
   * themselves.
   */
  readonly tell?: ((notice: object) => Promise<void>) | undefined
}

/**
 * Names that a device had and has not bound again on its new connection. Visitors wait for them while the
 * device binds its names. device-agent reports when it is done; other agents count as done when they bind
 * nothing for a while. device-agent is also told which names visitors wait for, and binds them first.
 */
export class NamesToCome {
  readonly #options: NamesToComeOptions
  readonly #ending = new AbortController()
  #device: DeviceReturn | undefined
  /** Monotonic. */
  #lookedAt = Number.NEGATIVE_INFINITY
  /** Names that visitors wait for and that the agent does not know yet, the longest wait first. */
  readonly #awaited = new Set<string>()
  #isTelling = false
  readonly #onAwaited: AwaitedListener = (hosts) => {
    for (const host of hosts) this.#awaited.add(host)
    if (!this.#isTelling) void this.#tellAwaited()
  }
  #listensTo: DeviceReturn | undefined
  #hasToldOthers = false
  /** Whether a name was refused because it could not be confirmed. */
  #hasUnconfirmed = false

  constructor(options: NamesToComeOptions) {
    this.#options = options
  }

  /** Called for each bind, which shows progress. The agent has the answer to its authentication by then. */
  goOn(): void {
    this.refresh()
    this.#listen()
  }

  /** Checks which names the device may bind again. Called first when the device has connected. */
  refresh(): void {
    if (this.#ending.signal.aborted) return
    const { registry, identity, clock } = this.#options
    const now = clock.monotonic()
    if (this.#device && now < this.#lookedAt + POLL_MS) return
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

  /** A bind was refused. */
  refused(error: Error): void {
    if (error instanceof UnconfirmedNameError) this.#hasUnconfirmed = true
  }

  /** Names can be confirmed again. */
  retry(): void {
    if (!this.#hasUnconfirmed || this.#ending.signal.aborted) return
    this.#hasUnconfirmed = false
    void this.#options.tell?.(retryNotice())
  }

  /** The device has bound all names that it wants. Its other names become free. */
  complete(): void {
    // Includes names that were lost since the last check.
    this.#lookedAt = Number.NEGATIVE_INFINITY
    this.refresh()
    if (this.#device) this.#options.registry.endReturn(this.#device)
    this.#tellOthers()
  }

  /**
   * The device may have left names at another gateway. An older gateway ignores the report. Once for each
   * connection: an agent that repeats itself must not use up the calls between gateways.
   */
  #tellOthers(): void {
    if (this.#hasToldOthers) return
    this.#hasToldOthers = true
    const { identity, others } = this.#options
    const { ownerId, credentialId, deviceId, instance } = identity
    for (const { id, isSelf, isLinked } of others.all()) {
      if (isSelf || !isLinked) continue
      others.ask(id, COMPLETE, { ownerId, credentialId, deviceId, instance }).catch(() => {})
    }
  }

  /** Called when the connection has ended. */
  stop(): void {
    if (this.#ending.signal.aborted) return
    this.#ending.abort()
    this.#listensTo?.unlisten(this.#onAwaited)
    if (this.#device) this.#options.registry.loseReturn(this.#device)
  }

  #listen(): void {
    const { registry, tell } = this.#options
    const device = this.#device
    if (!tell || !device || device === this.#listensTo || this.#ending.signal.aborted) return
    this.#listensTo?.unlisten(this.#onAwaited)
    this.#listensTo = device
    device.listen(this.#onAwaited)
    device.tellAwaited(registry.awaitedOf(device))
  }

  async #tellAwaited(): Promise<void> {
    const { tell, clock } = this.#options
    const { signal } = this.#ending
    this.#isTelling = true
    while (this.#awaited.size > 0 && !signal.aborted) {
      await tell?.(awaitedNotice(this.#awaited))
      await clock.sleep(TELL_MS, signal).catch(() => {})
    }
    this.#isTelling = false
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
    // Without a device id, other devices may use the same authtoken.
    if (this.#device && identity.deviceId !== undefined) registry.endReturn(this.#device)
  }
}
