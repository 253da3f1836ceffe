import type { AgentEndpoint } from '../../endpoints/endpoint.ts'
import type { RemoteEndpoint } from '../../endpoints/routes.ts'
import type { BodyPipe } from '../common/body-pipe.ts'
import type { Forward } from '../device/forward.ts'
import type { GrowingBuffer } from '../syntax/growing-buffer.ts'
import type { PolicyRun } from './policy-run.ts'
import type { Switched } from './upgrade.ts'

/** State of a client's request, with the data of that state. */
export type ExchangeState =
  /**
   * Its endpoint is searched, for the first time or after its device was lost: below a policy, if
   * that has decided about the request before.
   */
  | { readonly name: 'searching'; readonly policy: PolicyRun | undefined }
  /** A policy decides about the request. */
  | { readonly name: 'judging-request'; readonly policy: PolicyRun }
  /** Its body is read completely, with the changes of the policy. */
  | { readonly name: 'preparing'; readonly policy: PolicyRun; readonly pipe: BodyPipe }
  /** It is with the device, or another node, or waits for a stream there; no final response has come. */
  | {
      readonly name: 'forwarding'
      readonly forward: Forward
      readonly policy: PolicyRun | undefined
      /** A home is at another node. */
      readonly to: AgentEndpoint | RemoteEndpoint
    }
  /** A policy decides about the response, whose body waits. */
  | {
      readonly name: 'judging-response'
      readonly forward: Forward
      readonly policy: PolicyRun
      /** Received part of the body, with its framing. */
      readonly held: GrowingBuffer
    }
  /** A policy decides about the answer that it has made itself. */
  | { readonly name: 'judging-reply'; readonly policy: PolicyRun }
  /** The response goes to the client. Without a forward, a policy made it. */
  | { readonly name: 'responding'; readonly forward: Forward | undefined }
  /** The client has its response. The rest of its body is dropped, up to so many bytes of it. */
  | { readonly name: 'draining'; readonly bodyLimit: number }
  /** A 101 was answered: the bytes of both sides pass by. */
  | { readonly name: 'switched'; readonly upgrade: Switched }
  /** No further events. */
  | { readonly name: 'over' }

export type ExchangeStateName = ExchangeState['name']

/** From everywhere: the client leaves, or gets an answer of the gateway and goes on. */
const ENDS = ['draining', 'over'] as const

const NEXT: Record<ExchangeStateName, readonly ExchangeStateName[]> = {
  searching: ['searching', 'forwarding', 'judging-request', 'preparing', ...ENDS],
  // Handed on to an internal endpoint, a request is judged there, too.
  'judging-request': [
    'forwarding',
    'judging-request',
    'preparing',
    'judging-reply',
    'searching',
    ...ENDS,
  ],
  preparing: ['forwarding', 'searching', ...ENDS],
  forwarding: ['responding', 'judging-response', 'switched', 'searching', ...ENDS],
  'judging-response': ['responding', ...ENDS],
  'judging-reply': ['responding', ...ENDS],
  responding: ENDS,
  draining: ['over'],
  switched: ['over'],
  over: [],
}

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
export function nextExchangeState(state: ExchangeState, next: ExchangeState): ExchangeState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`an exchange cannot be ${next.name} after ${state.name}`)
}
