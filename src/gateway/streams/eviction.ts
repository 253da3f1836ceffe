import type { ProxyStream } from './proxy-stream.ts'
import type { ClientHolding, Holding } from './shares.ts'
import type { SlotUser, Waiting } from './waiting-line.ts'

/** Streams that a client has ended without a free slot: ending more frees none. */
const MAX_STUCK = 4

interface Candidate {
  readonly stream: ProxyStream
  readonly client: ClientHolding
  readonly endpoint: Holding
  readonly rate: number
  readonly isHeldUp: boolean
}

export interface EvictionOptions {
  /** All endpoints of the device. */
  readonly users: Iterable<SlotUser>
  /** The waiting request that gets the stream. */
  readonly waiting: Waiting
  /** That endpoint has its share: only a stream of its own helps. */
  readonly isEndpointFull: boolean
  /** Bytes a second; an exchange of this rate is left alone. */
  readonly leastRate: number
  readonly most: number
}

/**
 * Chooses exchanges to end for a waiting request, in order. Only exchanges below the minimum rate are chosen:
 * first those of clients that do not read, then those that wait for the device, or in which neither side has
 * data (a slow service, a long poll, a WebSocket). The largest holder comes first, then the slowest. An
 * exchange is ended only if its client or endpoint holds at least two more than the waiter: so equals do not
 * displace each other in turns. For a waiter without a stream, a slow client loses even its only one, but a
 * quiet client does not: it may have a good reason.
 */
export function chooseEvictions(options: EvictionOptions): ProxyStream[] {
  const candidates = findCandidates(options)
  const chosen: ProxyStream[] = []
  /** As they will be when all that was chosen has changed hands. */
  const after = { given: 0, taken: new Map<Holding, number>() }
  const { waiting, most } = options
  while (chosen.length < most) {
    let best: Candidate | undefined
    for (const candidate of candidates) {
      if (!isFair(candidate, waiting, after)) continue
      if (!best || compare(candidate, best, after.taken) < 0) best = candidate
    }
    if (!best) break
    candidates.splice(candidates.indexOf(best), 1)
    chosen.push(best.stream)
    after.given += 1
    for (const holding of [best.client, best.endpoint]) {
      after.taken.set(holding, (after.taken.get(holding) ?? 0) + 1)
    }
  }
  return chosen
}

function findCandidates(options: EvictionOptions): Candidate[] {
  const { users, waiting, isEndpointFull, leastRate } = options
  const candidates: Candidate[] = []
  const busy = new Map<ClientHolding, number>()
  for (const user of users) {
    for (const stream of user.busy) {
      const { client, user: exchange } = stream
      if (!client || !exchange) continue
      busy.set(client, (busy.get(client) ?? 0) + 1)
      if (isEndpointFull && user !== waiting.user) continue
      const { rate, isHeldUp } = exchange.pace
      if (rate === undefined || rate >= leastRate) continue
      candidates.push({ stream, client, endpoint: user.holding, rate, isHeldUp })
    }
  }
  const isStuck = (client: ClientHolding) => client.held - (busy.get(client) ?? 0) >= MAX_STUCK
  return candidates.filter(({ client, isHeldUp }) => isHeldUp || !isStuck(client))
}

interface Exchanged {
  readonly given: number
  readonly taken: ReadonlyMap<Holding, number>
}

function isFair(
  { client, endpoint, isHeldUp }: Candidate,
  { clientHolding, user }: Waiting,
  { given, taken }: Exchanged,
): boolean {
  const left = (holding: Holding) => holding.held - (taken.get(holding) ?? 0)
  const clientHas = clientHolding.held + given
  if (isHeldUp && clientHas === 0) return true
  if (left(client) < 2) return false
  return left(client) - clientHas >= 2 || left(endpoint) - (user.holding.held + given) >= 2
}

function compare(a: Candidate, b: Candidate, taken: Exchanged['taken']): number {
  const left = ({ client }: Candidate) => client.held - (taken.get(client) ?? 0)
  return Number(b.isHeldUp) - Number(a.isHeldUp) || left(b) - left(a) || a.rate - b.rate
}
