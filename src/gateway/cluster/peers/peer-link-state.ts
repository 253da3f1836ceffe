import type { Session } from '../../../muxado/session.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import type { LinkRefusal } from './greeting.ts'

/** How a link to another node stands, as seen from the one that opens it. */
export type PeerLinkState =
  /** TLS is being agreed on. */
  | { readonly name: 'connecting' }
  /** It is known who is there; versions are being compared. */
  | { readonly name: 'greeting'; readonly session: Session }
  | {
      readonly name: 'up'
      readonly session: Session
      /** For its visitors. */
      readonly slots: StreamSlots
      readonly version: number
    }
  /** It is tried again in a while. */
  | {
      readonly name: 'down'
      /** For people; no address and no secret. */
      readonly reason: string
      readonly refusal: LinkRefusal | undefined
    }
  | { readonly name: 'closed' }

type Name = PeerLinkState['name']

const NEXT: Record<Name, readonly Name[]> = {
  connecting: ['greeting', 'down', 'closed'],
  greeting: ['up', 'down', 'closed'],
  up: ['down', 'closed'],
  down: ['connecting', 'closed'],
  closed: [],
}

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
export function nextPeerLinkState(state: PeerLinkState, next: PeerLinkState): PeerLinkState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a link cannot be ${next.name} after ${state.name}`)
}
