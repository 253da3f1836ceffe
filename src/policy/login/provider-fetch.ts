import type { CustomFetch } from 'openid-client'
import { send } from '../outbound/outbound.ts'
import type { PolicyReach } from '../outbound/policy-reach.ts'

/** Bytes of an answer of a provider. */
const MAX_ANSWER = 262_144
/** Of one answer; a sign-in takes three of them at most. */
export const PROVIDER_TIMEOUT_S = 5

/** Asks providers as other servers are asked: where the gateway allows it, bounded in bytes and time. */
export function providerFetch(reach: PolicyReach): CustomFetch {
  return async (url, { method, headers, body }) => {
    const answer = await send(
      {
        url: new URL(url),
        method,
        headers: { ...headers, 'user-agent': 'device-agent-gateway' },
        body: body instanceof URLSearchParams ? body.toString() : undefined,
        maxBytes: MAX_ANSWER,
        // The library's own signal is for the same time.
        signal: AbortSignal.timeout(PROVIDER_TIMEOUT_S * 1_000),
      },
      reach,
    )
    const fields = new Headers()
    for (const [name, values] of answer.headers) {
      for (const value of values) fields.append(name, value)
    }
    const hasBody = ![204, 205, 304].includes(answer.status)
    return new Response(hasBody ? answer.body : null, { status: answer.status, headers: fields })
  }
}
