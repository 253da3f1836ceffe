import { expect, it } from 'vitest'
import {
  type ExchangeState,
  type ExchangeStateName,
  nextExchangeState,
} from '../../../../src/gateway/ingress/exchange/exchange-state.ts'

/** Which states may follow, as a person would draw it. */
const DRAWING: Record<ExchangeStateName, string> = {
  searching: 'searching judging-request preparing forwarding draining over',
  'judging-request': 'judging-request preparing forwarding judging-reply searching draining over',
  preparing: 'forwarding searching draining over',
  forwarding: 'judging-response responding switched searching draining over',
  'judging-response': 'responding draining over',
  'judging-reply': 'responding draining over',
  responding: 'draining over',
  draining: 'over',
  switched: 'over',
  over: '',
}
const NAMES = Object.keys(DRAWING) as ExchangeStateName[]

it.each(NAMES)('an exchange that is %s goes on to the states of its line alone', (name) => {
  const state = { name } as ExchangeState
  const allowed = NAMES.filter((next) => {
    try {
      return nextExchangeState(state, { name: next } as ExchangeState).name === next
    } catch (error) {
      expect(String(error)).toContain(`an exchange cannot be ${next} after ${name}`)
      return false
    }
  })
  expect(allowed.sort()).toEqual(DRAWING[name].split(' ').filter(Boolean).sort())
})
