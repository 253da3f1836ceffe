import { readFileSync } from 'node:fs'
import { rename, writeFile } from 'node:fs/promises'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { AwayName, NameFacts } from './away-name.ts'
import type { AgentEndpoint } from './endpoint.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

/** A name that changes is in the file after this at the latest. */
const LOOK_MS = 1_000

const NameSchema = z.strictObject({
  host: z.string(),
  ownerId: z.string().nullable(),
  protocol: z.enum(['http', 'https']),
  url: z.string(),
  isShared: z.boolean(),
  credentialId: z.string(),
  deviceId: z.string().optional(),
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
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Which names devices have, in a file for the next process: it holds them until the devices are
 * back, where it would say that nobody has them. Without fsync, because a file that is lost costs
 * no more than that.
 */
export class KeptNames {
  readonly #options: KeptNamesOptions
  readonly #stopping = new AbortController()
  #written = -1
  #looking: Promise<void> = Promise.resolve()

  constructor(options: KeptNamesOptions) {
    this.#options = options
  }

  /** Holds the names of the process before, and keeps the file true from now on. */
  start(): void {
    const { registry, mayReturn, log } = this.#options
    for (const { isHeld, ...facts } of this.#read()) {
      if (!mayReturn(facts)) continue
      const name = registry.hold(facts)
      if (!isHeld && name) registry.stopHolding(name)
    }
    this.#looking = this.#look().catch((err) => log.warn({ err }, 'names of devices not kept'))
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#looking
    await this.#write()
  }

  async #look(): Promise<void> {
    const { clock, log } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#write().catch((err) => log.warn({ err }, 'names of devices not kept'))
      await clock.sleep(LOOK_MS, signal).catch(() => {})
    }
  }

  async #write(): Promise<void> {
    const { registry, path } = this.#options
    const { revision } = registry
    if (revision === this.#written) return
    const temporary = `${path}.tmp`
    await writeFile(temporary, JSON.stringify(this.#names()), { mode: 0o600 })
    await rename(temporary, path)
    this.#written = revision
  }

  #names(): KeptName[] {
    const { registry, holderOf } = this.#options
    const names: KeptName[] = []
    for (const endpoint of registry.all()) {
      const holder = endpoint.type === 'agent' ? holderOf(endpoint) : undefined
      if (!holder) continue
      const isShared = registry.isShared(endpoint)
      const { credentialId, deviceId } = holder
      names.push(keptName({ ...endpoint, isShared, credentialId, deviceId }, true))
    }
    for (const name of registry.allAway()) names.push(keptName(name, registry.isHeld(name)))
    return names
  }

  /** A file of another form, or that cannot be read, is as good as none. */
  #read(): KeptName[] {
    const { path, log } = this.#options
    try {
      return NamesSchema.parse(JSON.parse(readFileSync(path, 'utf8')))
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code !== 'ENOENT') log.warn({ path }, 'the file of names is damaged: devices begin anew')
      return []
    }
  }
}

function keptName(
  { host, ownerId, protocol, url, isShared, credentialId, deviceId }: NameFacts | AwayName,
  isHeld: boolean,
): KeptName {
  return { host, ownerId, protocol, url, isShared, credentialId, deviceId, isHeld }
}
