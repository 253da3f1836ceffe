import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { NameFacts } from './away-name.ts'
import type { AgentEndpoint } from './endpoint.ts'
import { isPooled } from './endpoint-pool.ts'
import { drawnFor, type EndpointRegistry } from './endpoint-registry.ts'
import { KeptFile } from './kept-file.ts'

/** A name that changes is in the file after this at the latest. */
const LOOK_MS = 1_000

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
  /** Its device was here when it was written, or had just gone. */
  isHeld: z.boolean(),
})
const NamesSchema = z.array(NameSchema)
type KeptName = z.output<typeof NameSchema>

export interface KeptNamesOptions {
  readonly path: string
  readonly registry: EndpointRegistry
  /** Who opened an endpoint; undefined when its session is over. */
  readonly holderOf: (
    endpoint: AgentEndpoint,
  ) => Pick<NameFacts, 'credentialId' | 'deviceId'> | undefined
  /** Whether that authtoken may still have the name. */
  readonly mayReturn: (name: NameFacts) => boolean
  /** How much longer than usual names are held at first: until the process before has let go of them. */
  readonly extraMs?: number | undefined
  readonly clock: Clock
  readonly log: Logger
}

/** Which names devices have: the next process holds them, where it would say that nobody has them. */
export class KeptNames {
  readonly #options: KeptNamesOptions
  readonly #file: KeptFile

  constructor(options: KeptNamesOptions) {
    this.#options = options
    this.#file = new KeptFile({
      ...options,
      what: 'names of devices',
      everyMs: LOOK_MS,
      revision: () => options.registry.revision,
      content: () => JSON.stringify(this.#names()),
    })
  }

  /** Holds the names of the process before, and keeps the file true from now on. */
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

  /** Leaves the file to another process, as true as it can be. */
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
    for (const name of registry.allAway()) names.push(keptName(name, registry.isHeld(name)))
    return names
  }
}

function keptName(name: NameFacts, isHeld: boolean): KeptName {
  const { host, ownerId, protocol, url, isShared, credentialId, deviceId, drawn } = name
  const facts = { host, ownerId, protocol, url, isShared, credentialId, deviceId, drawn, isHeld }
  return name.isPooled ? { ...facts, isPooled: true } : facts
}
