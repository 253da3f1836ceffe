import { hostname } from 'node:os'
import type { ListenAddress } from '../../base/listen-address.ts'

/** Thrown when a gateway says nothing in time, or nothing that is understood. */
export class NoAnswerError extends Error {
  override readonly name = 'NoAnswerError'
}

/** A gateway as this one sees it. */
export interface SeenGateway {
  readonly id: string
  /** Of its machine. */
  readonly name: string
  readonly version: string
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  /** Since when it stands like that. */
  readonly since: number
  readonly isSelf: boolean
  /** `lost`: the others have given it up; `left`: it was stopped. */
  readonly standing: 'serving' | 'draining' | 'lost' | 'left'
  /** Whether it serves, as far as this gateway has heard; a lost one may. */
  readonly serves: boolean
  /** Where the others reach it; undefined for a gateway that is the only one. */
  readonly address: ListenAddress | undefined
  /** Whether it can be asked, and visitors be forwarded to it. */
  readonly isLinked: boolean
  /** Round trip of the last heartbeat. */
  readonly latencyMs: number | undefined
  /** Its right to serve; null for a gateway that is the only one. */
  readonly lease: {
    /** `overdue`: its beat is late, and the others may give it up. */
    readonly state: 'held' | 'overdue' | 'lost' | 'left'
    readonly epoch: number
    /** For how long its beat has stood still, as this gateway sees it. */
    readonly silentMs: number
  } | null
}

/** What gateways tell and ask each other. */
export interface OtherGateways {
  /** This gateway. */
  readonly self: string
  /** Whether records are shared with other gateways, also while there are none. */
  readonly isShared: boolean
  /** How many gateways there are, this one among them. */
  readonly count: number
  /** Whether a gateway serves, as far as this one has heard. */
  serves(id: string): boolean
  find(id: string): SeenGateway | undefined
  /** All that are known, this one among them. */
  all(): readonly SeenGateway[]
  /** Answers one kind of question; a ServiceError is passed to the gateway that asked. */
  on(kind: string, answer: (of: unknown) => unknown): void
  /** Throws a NoAnswerError, and the ServiceError that the other gateway refuses with. */
  ask(id: string, kind: string, of?: object): Promise<unknown>
  /** Forgets a gateway that is gone for good: false where it runs still. Throws a ServiceError. */
  forget(id: string): Promise<boolean>
}

/** The id of a gateway that is the only one. */
export const ONLY_NODE = `nd_${'0'.repeat(27)}`

/** There are no others. */
export class NoOthers implements OtherGateways {
  readonly self = ONLY_NODE
  readonly isShared = false
  readonly count = 1
  readonly #itself: SeenGateway

  constructor(version: string) {
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
