/**
 * Of a name whose device has not got it at present.
 *
 * | state       | its device                                                    | visitors        |
 * |-------------|---------------------------------------------------------------|-----------------|
 * | `held`      | disconnected a moment ago                                     | wait            |
 * | `returning` | is connected, and has not bound all of its names again        | wait            |
 * | `away`      | disconnected longer ago than the hold, or binds nothing more  | get 503 at once |
 *
 * A name that its device has given up is in none of them: nobody has it.
 */
export type AwayState = 'held' | 'returning' | 'away'

/**
 * `hold`: the hold begins now. `return`: the device has connected. `lose`: it has disconnected before it
 * had all names. `expire`: the hold is over, or the device has bound nothing for long.
 */
export type AwayEvent = 'hold' | 'return' | 'lose' | 'expire'

const NEXT: Record<AwayState, Partial<Record<AwayEvent, AwayState>>> = {
  held: { return: 'returning', expire: 'away' },
  returning: { hold: 'held', lose: 'held', expire: 'away' },
  away: { hold: 'held', return: 'returning' },
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextAwayState(state: AwayState, event: AwayEvent): AwayState {
  return NEXT[state][event] ?? state
}
