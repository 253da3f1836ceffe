import { AppError } from '../../base/app-error.ts'
import type { JsonObject, TunnelSpec } from '../tunnel.ts'
import type { PolicyCheck } from './policy-check.ts'

/** By their names of today and of before. */
const REQUEST_PHASES = new Set(['on_http_request', 'on_http_response', 'inbound', 'outbound'])
const NO_REQUESTS =
  'A tcp or tls tunnel has no HTTP requests. Use the phase on_tcp_connect for these rules.'

/** The policy of a tunnel: its own, or what the default one has for what comes in there. */
export function policyOf({ policy, protocol }: TunnelSpec, fallback: JsonObject): JsonObject {
  if (policy || protocol === 'http') return policy ?? fallback
  return Object.fromEntries(Object.entries(fallback).filter(([key]) => !REQUEST_PHASES.has(key)))
}

/** Throws AppError `policy-invalid` for a policy of its own that is of no use to the tunnel. */
export async function requirePolicy(spec: TunnelSpec, check: PolicyCheck): Promise<void> {
  const { policy, protocol } = spec
  if (!policy) return
  const phases =
    protocol === 'http' ? [] : Object.keys(policy).filter((key) => hasRules(policy, key))
  const detail = NO_REQUESTS
  const problems =
    phases.length > 0
      ? phases.map((phase) => ({ pointer: `/${phase}`, detail, code: 'ERR_NGROK_2230' }))
      : await check(policy)
  if (problems.length === 0) return
  const errors = problems.map((one) => ({ ...one, pointer: `/policy${one.pointer}` }))
  throw new AppError('policy-invalid', problems[0]?.detail ?? '', { errors })
}

function hasRules(policy: JsonObject, phase: string): boolean {
  const rules = policy[phase]
  return REQUEST_PHASES.has(phase) && !(Array.isArray(rules) && rules.length === 0)
}
