import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { NameFacts } from './disconnected-name.ts'
import type { AgentEndpoint } from './endpoint.ts'
import { isPooled } from './endpoint-pool.ts'
import { drawnFor, type EndpointRegistry } from './endpoint-registry.ts'
import { KeptFile } from './kept-file.ts'

/** Interval for saving changed names, in milliseconds. */
const POLL_MS = 1_000

const NameSchema = z.strictObject({
  host: z.string(),
  ownerId: z.string().nullable(),
  protocol: z.enum(['http', 'https', 'tcp', 'tls']),
  url: z.string(),
  isShared: z.boolean(),
  credentialId: z.string(),
  deviceId: z.string().optional(),
  drawn: z.strictObject({ endpointId: z.string(), forwardsTo: z.string() }).optional(),
  isPooled: z.literal(true).optional(),
  /** Whether its device was connected, or had just disconnected, when the file was written. */
  isHeld: z.boolean(),
})
const NamesSchema = z.array(NameSchema)
type KeptName = z.output<typeof NameSchema>

export interface KeptNamesOptions {
  readonly path: string
  readonly registry: EndpointRegistry
  /** Device that opened an endpoint. Undefined if its session is over. */
  readonly holderOf: (
    endpoint: AgentEndpoint,
  ) => Pick<NameFacts, 'credentialId' | 'deviceId'> | undefined
  /** Whether that authtoken may still have the name. */
  readonly mayReturn: (name: NameFacts) => boolean
  /** Names are held this much longer at first, until the previous process has released them. */
  readonly extraMs?: number | undefined
  readonly clock: Clock
  readonly log: Logger
}

/** Names of devices. The next process holds them instead of refusing their visitors. */
export class KeptNames {
  readonly #options: KeptNamesOptions
  readonly #file: KeptFile

  constructor(options: KeptNamesOptions) {
    this.#options = options
    this.#file = new KeptFile({
      ...options,
      what: 'names of devices',
      everyMs: POLL_MS,
      revision: () => options.registry.revision,
      content: () => JSON.stringify(this.#names()),
    })
  }

  /** Holds the names of the previous process, and keeps the file up to date from now on. */
  start(): void {
    const { registry, mayReturn, extraMs } = this.#options
    const names = this.#file.read((text) => NamesSchema.parse(JSON.parse(text)))
    for (const { isHeld, ...facts } of names ?? []) {
      if (!mayReturn(facts)) continue
      const name = registry.hold(facts, extraMs)
      if (!isHeld && name) registry.stopHolding(name)
    }
    this.#file.start()
  }

  /** Saves the latest state and leaves the file to another process. */
  release(): Promise<void> {
    return this.#file.release()
  }

  reclaim(): void {
    this.#file.reclaim()
  }

  stop(): Promise<void> {
    return this.#file.stop()
  }

  #names(): KeptName[] {
    const { registry, holderOf } = this.#options
    const names: KeptName[] = []
    for (const endpoint of registry.all()) {
      const holder = endpoint.type === 'agent' ? holderOf(endpoint) : undefined
      if (!holder) continue
      const isShared = registry.isShared(endpoint)
      const { credentialId, deviceId } = holder
      const drawn = endpoint.type === 'agent' ? drawnFor(endpoint) : undefined
      const facts = { isShared, credentialId, deviceId, drawn, isPooled: isPooled(endpoint) }
      names.push(keptName({ ...endpoint, ...facts }, true))
    }
    for (const name of registry.allDisconnected()) names.push(keptName(name, registry.isHeld(name)))
    return names
  }
}

function keptName(name: NameFacts, isHeld: boolean): KeptName {
  const { host, ownerId, protocol, url, isShared, credentialId, deviceId, drawn } = name
  const facts = { host, ownerId, protocol, url, isShared, credentialId, deviceId, drawn, isHeld }
  return name.isPooled ? { ...facts, isPooled: true } : facts
}
