import type { AgentEndpoint, Endpoint } from '../../endpoints/endpoint.ts'
import type { RelayedConnection } from './relayed-connection.ts'

/** Where a connection of a visitor is. Before `open` nothing is read of it. */
export type TcpConnectionState =
  /** Its endpoint is searched, or waited for. */
  | { readonly name: 'searching' }
  /** `on_tcp_connect` decides about it. */
  | { readonly name: 'judging'; readonly endpoint: Endpoint }
  /** It has asked for a stream to the device. */
  | { readonly name: 'dialling'; readonly endpoint: AgentEndpoint }
  /** Bytes pass by, both ways. */
  | { readonly name: 'open' }
  /** A policy has handed it on to an endpoint at another node: what becomes of it is decided there. */
  | { readonly name: 'relayed'; readonly relay: RelayedConnection }
  | { readonly name: 'over' }

type Name = TcpConnectionState['name']

const NEXT: Record<Name, readonly Name[]> = {
  searching: ['judging', 'relayed', 'over'],
  // It is handed on.
  judging: ['dialling', 'searching', 'over'],
  // Its session was lost before there was a stream.
  dialling: ['open', 'searching', 'over'],
  open: ['over'],
  relayed: ['over'],
  over: [],
}

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
export function nextTcpConnectionState(
  state: TcpConnectionState,
  next: TcpConnectionState,
): TcpConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a connection cannot be ${next.name} after ${state.name}`)
}
