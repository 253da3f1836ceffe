import { createAsk } from './asking.js'

/** Fields that an error without a field is about, by error code. */
const FIELD_OF = {
  'domain-taken': '/domain',
  'domain-online-elsewhere': '/domain',
  'policy-invalid': '/policy',
}

/** Asks the agent. */
export const ask = createAsk({
  who: 'The agent',
  hint: 'Check that the agent is running and that you can reach the device.',
  // The doctor dials all that the agent depends on, the other asks each service.
  patience: { 'api/doctor': 60_000, 'api/services': 30_000 },
  refusal: ({ detail, code, errors = [] }) => {
    const pointer = FIELD_OF[code]
    const ofField = pointer && errors.length === 0 ? [{ pointer, detail }] : errors
    return { sentence: detail, code, errors: ofField }
  },
})
