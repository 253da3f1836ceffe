/** The moments at which rules run, in the order of an exchange. */
export const PHASES = ['on_tcp_connect', 'on_http_request', 'on_http_response'] as const

export type Phase = (typeof PHASES)[number]

/** Phases with a request. */
export const HTTP_PHASES = [
  'on_http_request',
  'on_http_response',
] as const satisfies readonly Phase[]

/** Phases with a response. */
export const RESPONSE_PHASE = ['on_http_response'] as const satisfies readonly Phase[]
