import { hostname } from 'node:os'
import type { ListenAddress } from '../../base/listen-address.ts'

/** Thrown if a gateway does not answer in time, or its answer is not valid. */
export class NoAnswerError extends Error {
  override readonly name = 'NoAnswerError'
}

/** State of a gateway as this gateway sees it. */
export interface SeenGateway {
  readonly id: string
  /** Host name of its machine. */
  readonly name: string
  readonly version: string
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  /** Time of the last change of `standing`, in milliseconds since the epoch. */
  readonly since: number
  readonly isSelf: boolean
  /** `lost`: the others have marked it as lost; `left`: it was stopped. */
  readonly standing: 'serving' | 'draining' | 'lost' | 'left'
  /** Whether it serves requests, as far as this gateway knows. A lost gateway may still serve. */
  readonly serves: boolean
  /** Address for the other gateways; undefined for a single gateway. */
  readonly address: ListenAddress | undefined
  /** Addresses for agents, the best first; empty if they are not known. */
  readonly agentAddresses: readonly string[]
  /** Whether it answers calls and accepts forwarded visitors. */
  readonly isLinked: boolean
  /** Round trip of the last heartbeat, in milliseconds. */
  readonly latencyMs: number | undefined
  /** Its right to serve; null for a single gateway. */
  readonly lease: {
    /** `overdue`: its heartbeat is late, and the others may mark it as lost. */
    readonly state: 'held' | 'overdue' | 'lost' | 'left'
    readonly epoch: number
    /** Milliseconds since its last heartbeat, as this gateway sees it. */
    readonly silentMs: number
  } | null
}

/** Calls between gateways, and their states. */
export interface OtherGateways {
  /** This gateway. */
  readonly self: string
  /** Whether records are shared in a cluster, even while there are no other gateways. */
  readonly isShared: boolean
  /** Number of gateways, including this gateway. */
  readonly count: number
  /** Whether a gateway serves requests, as far as this gateway knows. */
  serves(id: string): boolean
  find(id: string): SeenGateway | undefined
  /** All known gateways, including this gateway. */
  all(): readonly SeenGateway[]
  /** Registers a handler for one kind of call. A ServiceError is returned to the caller. */
  on(kind: string, answer: (of: unknown) => unknown): void
  /** Calls another gateway. Throws a NoAnswerError, or the ServiceError of the other gateway. */
  ask(id: string, kind: string, of?: object): Promise<unknown>
  /** Removes a gateway that is gone for good. Returns false if it still runs. Throws a ServiceError. */
  forget(id: string): Promise<boolean>
}

/** Node id of a single gateway. */
export const ONLY_NODE = `nd_${'0'.repeat(27)}`

/** For a single gateway: there are no others. */
export class NoOthers implements OtherGateways {
  readonly self = ONLY_NODE
  readonly isShared = false
  readonly count = 1
  readonly #itself: SeenGateway

  constructor(version: string, agentAddresses: readonly string[]) {
    const startedAt = performance.timeOrigin
    this.#itself = {
      id: ONLY_NODE,
      name: hostname(),
      version,
      startedAt,
      since: startedAt,
      isSelf: true,
      standing: 'serving',
      serves: true,
      address: undefined,
      agentAddresses,
      isLinked: false,
      latencyMs: undefined,
      lease: null,
    }
  }

  serves(): boolean {
    return true
  }

  find(id: string): SeenGateway | undefined {
    return id === ONLY_NODE ? this.#itself : undefined
  }

  all(): readonly SeenGateway[] {
    return [this.#itself]
  }

  on(): void {}

  async ask(id: string): Promise<never> {
    throw new NoAnswerError(`no link to the node ${id}`)
  }

  async forget(): Promise<boolean> {
    return false
  }
}
