import type { ProxyStream } from '../../streams/proxy-stream.ts'
import type { HopStreams } from '../device/hop-streams.ts'

/** Where a connection is whose bytes go to another node. Before `open` nothing is read of it. */
export type RelayedConnectionState =
  /** The home of its endpoint is searched, or waited for. */
  | { readonly name: 'searching' }
  /** It gets a stream to its home. */
  | { readonly name: 'dialling'; readonly streams: HopStreams }
  /** A node has been asked whether it is the home. */
  | { readonly name: 'asking'; readonly stream: ProxyStream }
  /** Bytes pass by, both ways. */
  | { readonly name: 'open' }
  | { readonly name: 'over' }

type Name = RelayedConnectionState['name']

const NEXT: Record<Name, readonly Name[]> = {
  searching: ['dialling', 'over'],
  // The link was lost while it waited for one.
  dialling: ['asking', 'searching', 'over'],
  // It is not, or its link was lost.
  asking: ['open', 'searching', 'over'],
  open: ['over'],
  over: [],
}

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
export function nextRelayedConnectionState(
  state: RelayedConnectionState,
  next: RelayedConnectionState,
): RelayedConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a relayed connection cannot be ${next.name} after ${state.name}`)
}
