import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { InspectionProxy } from './inspection-proxy.ts'
import { ExchangeLog, type RecordedExchange } from './recorded-exchange.ts'
import { replay } from './replay.ts'

/** Maximum number of inspections, including ended ones. Each has its own memory (`MAX_BYTES`). */
const MAX_INSPECTIONS = 4
/** Recorded exchanges stay readable for this time after an inspection. */
const KEPT_MS = 10 * 60_000

export interface InspectionsOptions {
  readonly clock: Clock
  readonly log: Logger
  /** Reopens the endpoint of a tunnel, whose target has changed. Resolves when it is done. */
  readonly repoint: (tunnelId: string) => Promise<void>
  /** Returns the URL that the SDK dials for a tunnel now. */
  readonly dialled: (tunnelId: string) => string | undefined
}

/** The inspected tunnel. */
export interface Inspected {
  readonly id: string
  readonly spec: { readonly protocol: string }
}

/** State of an inspection for display. */
export interface InspectionStatus {
  /** `starting` and `ending`: the tunnel is being moved to the local proxy or back. */
  readonly state: 'off' | 'starting' | 'on' | 'ending'
  /** Milliseconds since the epoch. */
  readonly endsAt: number | undefined
}

interface Hop {
  readonly url: string
  readonly upstream: string
  readonly proxy: InspectionProxy
}

interface Inspection {
  readonly exchanges: ExchangeLog
  /** Aborted when the inspection ends. */
  ending: AbortController
  endsAt: number
  isOn: boolean
  /** Proxy through which the tunnel is dialled, once it is needed. */
  hop: Hop | undefined
}

/**
 * Inspections by tunnel.
 *
 * INVARIANTS
 * - A tunnel uses a proxy only while its inspection is on. All state is in memory, so a new process starts
 *   without inspections.
 * - A proxy is closed when no open tunnel uses it. Until the endpoint is reopened, visitors still come
 *   through the old one.
 */
export class Inspections {
  readonly #options: InspectionsOptions
  readonly #inspections = new Map<string, Inspection>()
  /** Proxies to close as soon as no tunnel uses them. */
  #leaving: { readonly tunnelId: string; readonly hop: Hop }[] = []

  constructor(options: InspectionsOptions) {
    this.#options = options
  }

  /** Returns the URL that the SDK has to dial, for a tunnel with its service at `dialUrl`. */
  async through(tunnelId: string, dialUrl: string): Promise<string> {
    const inspection = this.#inspections.get(tunnelId)
    if (!inspection?.isOn || !dialUrl.startsWith('http://')) return dialUrl
    if (inspection.hop?.upstream === dialUrl) return inspection.hop.url
    const hop = await this.#openHop(inspection, dialUrl)
    if (!inspection.isOn) {
      hop.proxy.close()
      return dialUrl
    }
    this.#closeUnused(tunnelId, inspection)
    inspection.hop = hop
    return hop.url
  }

  /**
   * Starts an inspection, or restarts the time of a running one. Throws AppError `not-inspectable` or
   * `too-many-inspections`.
   */
  async start({ id: tunnelId, spec }: Inspected, forMs: number): Promise<void> {
    if (spec.protocol !== 'http') throw notInspectable('Only http tunnels support inspection.')
    const before = this.#inspections.get(tunnelId)
    const others = [...this.#inspections].filter(([id, { isOn }]) => isOn && id !== tunnelId)
    if (others.length >= MAX_INSPECTIONS) {
      const detail = `${MAX_INSPECTIONS} tunnels are already inspected. Stop an inspection first.`
      throw new AppError('too-many-inspections', detail)
    }
    this.#makeRoom(tunnelId)
    before?.ending.abort()
    const inspection: Inspection = before ?? {
      exchanges: new ExchangeLog(),
      ending: new AbortController(),
      endsAt: 0,
      isOn: false,
      hop: undefined,
    }
    const wasOn = inspection.isOn
    const { clock } = this.#options
    inspection.ending = new AbortController()
    inspection.endsAt = clock.now() + forMs
    inspection.isOn = true
    this.#inspections.set(tunnelId, inspection)
    void this.#endAfter(tunnelId, inspection, forMs)
    if (!wasOn) await this.#options.repoint(tunnelId)
    const isOpen = this.#options.dialled(tunnelId) !== undefined
    if (inspection.hop || !inspection.isOn || !isOpen) return
    await this.stop(tunnelId)
    throw notInspectable(
      'Its upstream uses HTTP/2, HTTPS or a PROXY header instead of plain HTTP/1.1.',
    )
  }

  /** Ends an inspection and deletes its exchanges. */
  async stop(tunnelId: string): Promise<void> {
    const inspection = this.#inspections.get(tunnelId)
    if (!inspection) return
    inspection.ending.abort()
    this.#inspections.delete(tunnelId)
    await this.#end(tunnelId, inspection)
  }

  /** Reports that the dialled URL of a tunnel may have changed. */
  tunnelsChanged(): void {
    if (this.#leaving.length === 0) return
    const { dialled } = this.#options
    const isOver = ({ tunnelId, hop }: { tunnelId: string; hop: Hop }) =>
      hop.url !== dialled(tunnelId)
    for (const it of this.#leaving) if (isOver(it)) it.hop.proxy.close()
    this.#leaving = this.#leaving.filter((it) => !isOver(it))
  }

  /** Reports that the tunnel was deleted, so that its proxies can be closed. */
  forget(tunnelId: string): void {
    const inspection = this.#inspections.get(tunnelId)
    this.#inspections.delete(tunnelId)
    if (inspection) {
      inspection.ending.abort()
      inspection.isOn = false
      inspection.hop?.proxy.close()
    }
    for (const it of this.#leaving) if (it.tunnelId === tunnelId) it.hop.proxy.close()
    this.#leaving = this.#leaving.filter((it) => it.tunnelId !== tunnelId)
  }

  status(tunnelId: string): InspectionStatus {
    const inspection = this.#inspections.get(tunnelId)
    if (!inspection?.isOn) {
      const isLeaving = this.#leaving.some((it) => it.tunnelId === tunnelId)
      return { state: isLeaving ? 'ending' : 'off', endsAt: undefined }
    }
    const dialled = this.#options.dialled(tunnelId)
    const isThrough = inspection.hop !== undefined && inspection.hop.url === dialled
    return { state: isThrough ? 'on' : 'starting', endsAt: inspection.endsAt }
  }

  /** Returns the exchanges, oldest first. */
  list(tunnelId: string): RecordedExchange[] {
    return this.#inspections.get(tunnelId)?.exchanges.list() ?? []
  }

  /** Throws AppError `exchange-not-found`. */
  find(tunnelId: string, number: number): RecordedExchange {
    const found = this.#inspections.get(tunnelId)?.exchanges.find(number)
    if (found) return found
    throw new AppError('exchange-not-found', `Exchange ${number} does not exist or was deleted.`)
  }

  /**
   * Sends a request again, directly to the tunnel's service and not through the public address. Resolves with
   * the new exchange. Throws AppError `exchange-not-found` or `not-replayable`.
   */
  async replay(tunnelId: string, number: number): Promise<RecordedExchange> {
    const seen = this.find(tunnelId, number)
    const inspection = this.#inspections.get(tunnelId)
    if (!inspection?.isOn || !inspection.hop) {
      throw new AppError('not-replayable', 'The inspection has ended. Start it again.')
    }
    const { exchanges, hop } = inspection
    const { clock } = this.#options
    return replay({ seen, exchanges, upstream: new URL(hop.upstream), clock })
  }

  /** Ends all inspections when the process stops. */
  close(): void {
    const ids = [...this.#inspections.keys(), ...this.#leaving.map(({ tunnelId }) => tunnelId)]
    for (const id of ids) this.forget(id)
  }

  /** Deletes ended inspections of other tunnels first, because each may hold some megabytes. */
  #makeRoom(tunnelId: string): void {
    const others = [...this.#inspections].filter(([id]) => id !== tunnelId)
    const over = others.filter(([, { isOn }]) => !isOn)
    const tooMany = Math.max(0, others.length - MAX_INSPECTIONS + 1)
    for (const [id, { ending }] of over.slice(0, tooMany)) {
      ending.abort()
      this.#inspections.delete(id)
    }
  }

  async #openHop(inspection: Inspection, upstream: string): Promise<Hop> {
    const { clock } = this.#options
    const exchanges = () => (inspection.isOn ? inspection.exchanges : undefined)
    const proxy = new InspectionProxy({ upstream: new URL(upstream), exchanges, clock })
    return { url: await proxy.start(), upstream, proxy }
  }

  async #endAfter(tunnelId: string, inspection: Inspection, ms: number): Promise<void> {
    const { clock, log } = this.#options
    const { signal } = inspection.ending
    try {
      await clock.sleep(ms, signal)
      log.info({ tunnel: tunnelId }, 'the inspection has ended')
      await this.#end(tunnelId, inspection)
      await clock.sleep(KEPT_MS, signal)
      this.#inspections.delete(tunnelId)
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, tunnel: tunnelId }, 'cannot end the inspection')
    }
  }

  /** Closes the proxy as soon as the tunnel no longer uses it. */
  #closeUnused(tunnelId: string, inspection: Inspection): void {
    const { hop } = inspection
    inspection.hop = undefined
    if (hop) this.#leaving.push({ tunnelId, hop })
  }

  /** Connects the tunnel directly to its service again, then closes the proxies. */
  async #end(tunnelId: string, inspection: Inspection): Promise<void> {
    if (!inspection.isOn) return
    inspection.isOn = false
    this.#closeUnused(tunnelId, inspection)
    await this.#options.repoint(tunnelId)
    this.tunnelsChanged()
  }
}

function notInspectable(why: string): AppError {
  return new AppError('not-inspectable', `This tunnel cannot be inspected. ${why}`)
}
