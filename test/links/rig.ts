import type { ListenAddress } from '../../src/base/listen-address.ts'

/** A link as a device or a visitor has it. */
export interface LinkShape {
  readonly rttMs: number
  /** Of each direction; unlimited unless given. */
  readonly bytesPerSecond?: number
}

/** The ends of the links: this process is at the other end of both. */
export const PLACES = ['device', 'visitor'] as const
export type Place = (typeof PLACES)[number]

/** Two links from this process: one to where devices are, one to where visitors are. */
export interface Rig {
  /** How the links are made, for the table. */
  readonly kind: string
  /** Where programs of this process's side listen, so that a place reaches them. */
  hostFor(place: Place): string
  /** Where programs of a place listen, so that this side reaches them. */
  hostAt(place: Place): string
  /** What starts a program at a place, before its arguments. */
  commandAt(place: Place, program: readonly string[]): [string, ...string[]]
  /** The address at which a place finds a listener of this side, or this side one of that place. */
  across(place: Place, listener: ListenAddress): Promise<ListenAddress>
  shape(place: Place, link: LinkShape): void
  /** Resets every connection on the link. */
  reset(place: Place): void
  /** Carries nothing and loses nothing until told again. */
  stall(place: Place, isStalled: boolean): void
  stop(): Promise<void>
}

export const textOf = (link: LinkShape) =>
  link.bytesPerSecond === undefined
    ? `${link.rttMs} ms`
    : `${link.rttMs} ms, ${link.bytesPerSecond / 1_000} kB/s`
