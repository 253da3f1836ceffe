import { checkDomain, type DomainCodes, isInternal } from '../records/domain-name.ts'
import { ServiceError } from '../records/service-error.ts'

const HOST_CODES: DomainCodes = {
  character: 326,
  'wildcard-place': 326,
  'repeated-dot': 327,
  'first-character': 328,
  'last-character': 329,
  hyphens: 330,
  'top-level': 331,
  'not-qualified': 331,
  punycode: 347,
  underscore: 355,
  'label-length': 396,
  length: 397,
}
const MAX_INTERNAL_PARTS = 5

/** The binding of the endpoints on a host: who finds them. */
export function bindingOf(host: string): 'public' | 'internal' {
  return isInternal(host) ? 'internal' : 'public'
}

/**
 * Checks the lower-case host of an endpoint. Throws the ServiceError of its first problem: one of
 * 326 to 331, 347, 355, 396 and 397, or 9031 for an internal name with too many parts.
 */
export function checkEndpointHost(host: string): void {
  checkDomain(host, HOST_CODES)
  const parts = host.split('.').length
  if (!isInternal(host) || parts <= MAX_INTERNAL_PARTS) return
  throw new ServiceError(
    9031,
    `The internal domain ${host} has ${parts} parts; at most ${MAX_INTERNAL_PARTS} will do.`,
  )
}

/**
 * An endpoint that was meant for the inside must not come up in public, nor the other way round.
 * Throws ServiceError 9029 for that, and `unknownCode` for a binding that is not known here.
 */
export function checkBindings(asked: readonly string[], host: string, unknownCode: number): void {
  const foreign = asked.find((binding) => binding !== 'public' && binding !== 'internal')
  if (foreign !== undefined) {
    throw new ServiceError(unknownCode, `The binding ${foreign} is not supported here.`)
  }
  if (asked.every((binding) => binding === bindingOf(host))) return
  throw new ServiceError(
    9029,
    `The domain ${host} does not go with the binding ${asked.join(', ')}: internal endpoints, and only they, end in ".internal".`,
  )
}
