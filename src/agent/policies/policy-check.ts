import { AppError, type FieldError } from '../../base/app-error.ts'
import { DeadlineError } from '../../base/deadline.ts'
import type { Logger } from '../../base/logger.ts'
import type { PlacedProblem, PolicyCheckOptions } from '../../policy/check.ts'
import type { PolicyJson } from '../../policy/document/policy-text.ts'
import type { JsonObject, TunnelSpec } from '../tunnel.ts'
import { PolicyProcess, UncheckableError } from './policy-process.ts'

/** Current and former names. */
const REQUEST_PHASES = new Set(['on_http_request', 'on_http_response', 'inbound', 'outbound'])
const NO_REQUESTS =
  'A tcp or tls tunnel has no HTTP requests. Use the phase on_tcp_connect for these rules.'

/**
 * Returns the policy of a tunnel: its own, or the phases of the default policy that apply to its protocol.
 */
export function policyOf({ policy, protocol }: TunnelSpec, fallback: JsonObject): JsonObject {
  if (policy || protocol === 'http') return policy ?? fallback
  return Object.fromEntries(Object.entries(fallback).filter(([key]) => !REQUEST_PHASES.has(key)))
}

/** Throws AppError `policy-invalid` if the tunnel's own policy is invalid or has rules that cannot apply. */
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

const TOO_MUCH: FieldError = {
  pointer: '',
  detail: 'Checking the policy needs too much memory. Make the policy smaller.',
}

function tooSlow(cause: DeadlineError): AppError {
  const detail = `Checking the policy took longer than ${cause.ms / 1_000} s because the device is busy. Try again in a moment, or make the policy smaller.`
  return new AppError('policy-not-checked', detail, { retryAfterS: 5, cause })
}

export interface PolicyCheckerOptions extends PolicyCheckOptions {
  readonly log: Logger
  readonly process?: PolicyProcess | undefined
}

/** Returns all errors of a policy document. Empty if it can be used. */
export type PolicyCheck = (document: JsonObject) => Promise<FieldError[]>

/** Returns a JSON or YAML text as JSON, or one sentence about its first problem. */
export type PolicyReader = (text: string) => Promise<PolicyJson>

/** Checks policies in a separate process, with the same code as the gateway. */
export class PolicyChecker {
  readonly #options: PolicyCheckerOptions
  readonly #process: PolicyProcess

  constructor(options: PolicyCheckerOptions) {
    this.#options = options
    this.#process = options.process ?? new PolicyProcess()
  }

  /** Throws AppError `policy-not-checked` if it takes too long, and `shutting-down` after `stop()`. */
  readonly check: PolicyCheck = async (document) => {
    const { service } = this.#options
    const text = JSON.stringify(document)
    const problems = await this.#completed(this.#process.check(text, { service }), async () =>
      (await import('../../policy/check.ts')).checkPolicy(text, { service }),
    )
    return problems ? this.#errorsOf(problems) : [TOO_MUCH]
  }

  /** Reads a text in the same process. Throws like `check`. */
  readonly read: PolicyReader = async (text) => {
    const read = await this.#completed(this.#process.read(text), async () =>
      (await import('../../policy/document/policy-text.ts')).policyJson(text),
    )
    return read ?? { problem: TOO_MUCH.detail }
  }

  stop(): void {
    this.#process.stop()
  }

  #errorsOf(problems: readonly PlacedProblem[]): FieldError[] {
    for (const { severity, isForeign, pointer, message } of problems) {
      if (severity === 'warning' && isForeign) {
        const { log } = this.#options
        log.warn({ pointer, detail: message }, 'policy not checked here, the service will check it')
      }
    }
    return problems
      .filter(({ severity }) => severity === 'error')
      .map(({ pointer, message, code }) => ({ pointer, detail: message, code }))
  }

  /** Undefined if it needs too much memory. `here` does the same in this process. */
  async #completed<T>(answer: Promise<T>, here: () => Promise<T>): Promise<T | undefined> {
    try {
      return await answer
    } catch (error) {
      if (error instanceof AppError) throw error
      if (error instanceof UncheckableError) {
        // A slow check on a busy device does not mean that the policy is invalid.
        if (error.cause instanceof DeadlineError) throw tooSlow(error.cause)
        // A policy that is too large for the separate process must not be checked in this one.
        return undefined
      }
      // Changes must be possible even if the device has no memory for another process.
      this.#options.log.warn({ err: error }, 'checking the policy in the main process')
      return here()
    }
  }
}
