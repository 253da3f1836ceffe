/** How many streams an endpoint may hold for each that is left, and a client. */
const ENDPOINT_FACTOR = 4
const CLIENT_FACTOR = 2
/** A holder of fewer may use reserved streams. */
const FEW = 2

/** Streams of an endpoint of the device, or of a client at all endpoints. */
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

/** Streams that a device can provide now. */
export interface Supply {
  /** Free slots, and idle streams whose slots can be freed. */
  readonly available: number
  /** How many of them are kept for endpoints that hold few. */
  readonly reserved: number
}

/** Whether no other client or endpoint waits for a stream of the device: then there is no need to share. */
export interface Alone {
  /** No other client waits. */
  readonly client: boolean
  /** No other endpoint has waiting requests. */
  readonly endpoint: boolean
}

const NOT_ALONE: Alone = { client: false, endpoint: false }

/**
 * Whether one more stream is within the shares of an endpoint and of a client, by the number that each holds.
 * While others wait, each may hold only a multiple of the rest (dynamic thresholds, Choudhury and Hahne
 * 1998), so that something is always left for the next. Of 448 streams, one client beside others gets 288,
 * one endpoint with many clients 346, and twenty such endpoints about 21 each. Alone, each gets all but the
 * reserved streams.
 *
 * Reserved streams are for endpoints that hold few. So a client with its full share, or clients behind the
 * same router, still reach another tunnel, and the agent its own domain. Half of them are also for clients
 * that hold few, so that a second client does not wait for the first.
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

/** Whether an endpoint has its share: its waiters need one of its own streams. */
export function isEndpointFull({ available, reserved }: Supply, held: number): boolean {
  return available > reserved && held >= ENDPOINT_FACTOR * (available - reserved)
}

/** The same for places in the line, by how many wait already. */
export function mayWait(places: number, endpointWaiting: number, clientWaiting: number): boolean {
  return endpointWaiting < 2 * places && clientWaiting < places
}
