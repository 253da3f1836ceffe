import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { ClientHelloReader } from './client-hello.ts'
import type { IngressConnection } from './ingress-connection.ts'

/** Where a connection to the secure listener is. */
export type SecureConnectionState =
  /** It has still to say whom it wants. */
  | { readonly name: 'greeting'; readonly hello: ClientHelloReader }
  /** `on_tcp_connect` of an endpoint says how TLS is to end; it may be agreed on meanwhile. */
  | { readonly name: 'judging'; readonly endpoint: Endpoint }
  /** TLS ends here, and is being agreed on. */
  | { readonly name: 'handshake' }
  /** What serves it has taken it over. */
  | { readonly name: 'served'; readonly connection: IngressConnection }
  | { readonly name: 'over' }

type Name = SecureConnectionState['name']

const NEXT: Record<Name, readonly Name[]> = {
  greeting: ['judging', 'handshake', 'served', 'over'],
  judging: ['handshake', 'served', 'over'],
  handshake: ['served', 'over'],
  served: ['over'],
  over: [],
}

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
export function nextSecureConnectionState(
  state: SecureConnectionState,
  next: SecureConnectionState,
): SecureConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a connection cannot be ${next.name} after ${state.name}`)
}
