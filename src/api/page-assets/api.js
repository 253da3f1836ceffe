import { createAsk } from './asking.js'

/** Asks the agent. */
export const ask = createAsk({
  who: 'The agent',
  hint: 'Check that the agent is running and that you can reach the device.',
  // The doctor dials all that the agent depends on.
  patience: { 'api/doctor': 60_000 },
  refusal: ({ detail, code, errors = [] }) => {
    const lines = errors.map((error) => `\n${error.pointer.slice(1)} ${error.detail}`)
    return { sentence: `${detail}${lines.join('')}`, code }
  },
})
