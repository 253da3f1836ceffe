import type { Device } from '../records/device-store.ts'

/** The gateways of a site; each tells of the devices that are connected to it. */
export interface SiteNodes {
  /** This gateway. */
  readonly self: string
  isThere(node: string): boolean
  /** Whether this one tells of devices whose gateway is gone. */
  isOnDuty(): boolean
}

/** Devices whose gateway is gone: most are back at another one soon. */
export class Orphans {
  readonly #nodes: SiteNodes
  readonly #returnMs: number
  /** By id; since when it is known, monotonic. */
  #since = new Map<string, number>()

  constructor(nodes: SiteNodes, returnMs: number) {
    this.#nodes = nodes
    this.#returnMs = returnMs
  }

  /** Whether the gateway is gone that tells of the device. */
  has({ facts: { node } }: Device): boolean {
    return node !== undefined && node !== this.#nodes.self && !this.#nodes.isThere(node)
  }

  /**
   * Those that have had the time to come back, of all that are told to be online, who are asked for by the
   * gateway on duty alone: with thousands that is megabytes. `now` is monotonic.
   */
  due(online: () => readonly Device[], now: number): Device[] {
    const before = this.#since
    this.#since = new Map()
    if (!this.#nodes.isOnDuty()) return []
    const due: Device[] = []
    for (const device of online()) {
      if (!this.has(device)) continue
      const since = before.get(device.id) ?? now
      this.#since.set(device.id, since)
      if (now - since >= this.#returnMs) due.push(device)
    }
    return due
  }
}
