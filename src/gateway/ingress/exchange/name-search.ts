import type { DisconnectedName, HeldRequest } from '../../endpoints/disconnected-name.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { RemoteEndpoint } from '../../endpoints/routes.ts'
import { ofSameAccount, type Route, type RouteAccount } from '../../endpoints/routes.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import type { IngressContext } from '../common/ingress-context.ts'

/** Methods that change nothing, so that a request may go out again when its device was lost. */
const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
/** How often a device may get a request again that may have seen it: the request may end the device. */
const MAX_REPEATS = 2
/** How often a search may begin again because a device, or the link to its home, was lost. */
const MAX_LOSSES = 4

/** A search for a name, and its continuation. */
export interface NameQuery {
  /** The current holder of the name. */
  find(): Route | undefined
  /** Returns false if the visitor was answered, which ends the search. If absent, every route is admitted. */
  admits?(found: Route): boolean
  /** An endpoint here, or its home at another node: `NameSearch.reach` has the way to that. */
  onFound(found: Endpoint | RemoteEndpoint): void
  /**
   * `nobody`: the name does not exist. `away`: its device is disconnected, and there is no time or place to
   * wait.
   */
  onNone(reason: 'nobody' | 'away'): void
}

/** The request or connection that searches. */
export interface Searcher {
  /** Network that its waiting place is counted for; see `HeldRequest`. */
  readonly network: string
  /** Bytes in memory while it waits. */
  readonly waitingBytes: number
  /** See `Client`. */
  guard(step: () => void): void
}

/** Parts of a request that a lost device had received. */
interface LostRequest {
  /** The device may have seen it. */
  readonly wasSent: boolean
  readonly method: string
  readonly hasBody: boolean
  /** The client has heard nothing. */
  readonly isSilent: boolean
}

/** State of a search. */
type SearchState =
  /** Not started, or continued by its owner. */
  | { readonly name: 'idle' }
  /** The device is away, or its home cannot be reached: until it is back, or the time is up. */
  | { readonly name: 'waiting'; readonly away: DisconnectedName }
  /** The device was lost. Its session has still to withdraw its names. */
  | { readonly name: 'shifting' }

const NEXT: Record<SearchState['name'], readonly SearchState['name'][]> = {
  idle: ['waiting', 'shifting'],
  waiting: ['idle'],
  shifting: ['idle'],
}

const IDLE: SearchState = { name: 'idle' }

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
function nextSearchState(state: SearchState, next: SearchState): SearchState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a search cannot be ${next.name} after ${state.name}`)
}

/**
 * The search for the endpoint that serves a name: here, at another node, or after a wait.
 *
 * INVARIANTS
 * - While it waits it holds one place at the away name, and `stop()` gives that back.
 * - After the first find it moves to no other account, until its owner calls `start` again.
 * - A node that disowns a name is not asked again at once: the search waits first.
 */
export class NameSearch implements HeldRequest {
  readonly network: string
  /** Value at the beginning of the wait. */
  bytes = 0
  readonly #context: IngressContext
  readonly #owner: Searcher
  #query: NameQuery | undefined
  #account: RouteAccount | undefined
  #home: RemoteEndpoint | undefined
  /** The node that was thought to be home, and has said that it is not. */
  #disownedBy: string | undefined
  #losses = 0
  #repeats = 0
  #state = IDLE

  constructor(context: IngressContext, owner: Searcher) {
    this.#context = context
    this.#owner = owner
    this.network = owner.network
  }

  /** Looks for a name, or goes on with a home that is known already. */
  start(query: NameQuery, home?: RemoteEndpoint): void {
    this.#query = query
    this.#account = home
    if (home) query.onFound(home)
    else this.#search(query)
  }

  /** Looks again where it waits; does nothing where it does not. */
  again(): void {
    if (this.#state.name === 'idle' || !this.#query) return
    this.stop()
    this.#search(this.#query)
  }

  /** Waits no more. */
  stop(): void {
    const state = this.#state
    if (state.name === 'idle') return
    if (state.name === 'waiting') this.#context.routes.cancel(state.away, this)
    this.#become(IDLE)
  }

  /** See `HeldRequest`. */
  onNameChange(): void {
    this.#owner.guard(() => this.again())
  }

  /**
   * The device, or the link to its node, was lost. Searches again in the next turn, with another query if
   * given. False when the search is over: too many losses, or the request might be sent twice. Without a
   * request, nothing was sent.
   */
  lost(request?: LostRequest, query?: NameQuery): boolean {
    if (!this.#mayGoOutAgain(request)) return false
    if (query) this.#query = query
    this.#become({ name: 'shifting' })
    // After a stop, it does nothing.
    setImmediate(() => this.#owner.guard(() => this.again()))
    return true
  }

  /** The node where it went is not the home. */
  disowned(): void {
    this.#disownedBy = this.#home?.nodeId
    if (this.#query) this.#search(this.#query)
  }

  /**
   * Returns the link to a serving node. If undefined, the search waits for the node or reports that it
   * cannot.
   */
  reach(home: RemoteEndpoint): StreamSlots | undefined {
    const { peers, routes } = this.#context
    const link = peers?.find(home.nodeId)?.slots
    const isDisowned = this.#disownedBy === home.nodeId
    this.#disownedBy = undefined
    this.#home = home
    if (link && !isDisowned) return link
    this.#wait(routes.holdHome?.(home))
    return undefined
  }

  #search(query: NameQuery): void {
    const found = ofSameAccount(query.find(), this.#account)
    if (!found) {
      query.onNone('nobody')
      return
    }
    this.#account = found
    if (query.admits?.(found) === false) return
    if (found.type === 'disconnected') this.#wait(found)
    else query.onFound(found)
  }

  #wait(away: DisconnectedName | undefined): void {
    this.bytes = this.#owner.waitingBytes
    if (away && this.#context.routes.wait(away, this)) this.#become({ name: 'waiting', away })
    else this.#query?.onNone('away')
  }

  /**
   * Whether the request can be retried safely: the device did not get it, or it is safe (RFC 9110 9.2.1) and
   * the client got nothing. Bounded, because the request itself may crash devices.
   */
  #mayGoOutAgain(request: LostRequest | undefined): boolean {
    if (this.#losses >= MAX_LOSSES) return false
    if (request?.wasSent) {
      if (this.#repeats >= MAX_REPEATS) return false
      this.#repeats += 1
      if (!SAFE.has(request.method) || request.hasBody || !request.isSilent) return false
    }
    this.#losses += 1
    return true
  }

  #become(next: SearchState): void {
    this.#state = nextSearchState(this.#state, next)
  }
}
