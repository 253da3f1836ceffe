/** How many streams an endpoint may hold for each that is left, and a client. */
const ENDPOINT_FACTOR = 4
const CLIENT_FACTOR = 2
/** Who holds less may take of what is reserved. */
const FEW = 2

/** What an endpoint has of the streams of its device, or a client of all endpoints'. */
export class Holding {
  /** Streams that are not idle: with an exchange, or given up and their slots not free yet. */
  held = 0
  /** Exchanges in the line. */
  waiting = 0
}

/** That of a client, by the network it comes from. */
export class ClientHolding extends Holding {
  readonly network: string

  constructor(network: string) {
    super()
    this.network = network
  }
}

/** What a device can give at the moment. */
export interface Supply {
  /** Free slots, and idle streams, whose slots can be had back. */
  readonly available: number
  /** How many of them are kept for endpoints that hold few. */
  readonly reserved: number
}

/** Whether nobody else waits for a stream of the device: then there is nobody to share with. */
export interface Alone {
  /** No other client waits. */
  readonly client: boolean
  /** Nobody waits for another endpoint. */
  readonly endpoint: boolean
}

const NOT_ALONE: Alone = { client: false, endpoint: false }

/**
 * Whether one more stream is within the share of an endpoint and of a client, by how many each holds.
 * While others wait, nobody may hold more than a multiple of the rest (dynamic thresholds, Choudhury and
 * Hahne 1998), so that something is always left for the next. Of 448 streams one client gets 288 beside
 * others, one endpoint with many clients 346, twenty such endpoints about 21 each. Alone, each gets all
 * but the reserved ones.
 *
 * The reserved streams are for endpoints that hold few: a client that has its share, or looks like it
 * behind the same router, still reaches another tunnel, and the agent its own domain. Half of them are
 * also for clients that hold few, so that a second client does not wait for the first.
 */
export function isWithinShare(
  { available, reserved }: Supply,
  endpointHeld: number,
  clientHeld: number,
  alone = NOT_ALONE,
): boolean {
  if (available <= 0) return false
  const left = Math.max(0, available - reserved)
  const isClientWithin = alone.client || clientHeld < CLIENT_FACTOR * left
  const isEndpointWithin = alone.endpoint || endpointHeld < ENDPOINT_FACTOR * left
  if (left > 0 && isClientWithin && isEndpointWithin) return true
  const isUpperHalf = available > Math.floor(reserved / 2)
  if (endpointHeld < FEW) return isUpperHalf || clientHeld < CLIENT_FACTOR * left + reserved
  return alone.endpoint && isUpperHalf && clientHeld < FEW
}

/** True when an endpoint has its share: only a stream of its own helps who waits for it. */
export function isEndpointFull({ available, reserved }: Supply, held: number): boolean {
  return available > reserved && held >= ENDPOINT_FACTOR * (available - reserved)
}

/** The same for places in the line, by how many wait already. */
export function mayWait(places: number, endpointWaiting: number, clientWaiting: number): boolean {
  return endpointWaiting < 2 * places && clientWaiting < places
}
