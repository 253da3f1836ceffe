import { randomBytes } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import { type DomainProblem, findDomainProblem, isBelow, isInternal } from './domain-name.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'
import type { ReservedDomain, ReservedDomainStore } from './reserved-domain-store.ts'
import type { IdSource } from './resource-id.ts'
import { checkLength, ServiceError } from './service-error.ts'

/** Code and sentence for each thing that can be wrong with a name to reserve. */
const REFUSALS: Record<DomainProblem, readonly [code: number, sentence: string]> = {
  character: [406, 'a domain consists of a-z, 0-9, dots and hyphens'],
  underscore: [438, 'a domain has no underscores'],
  'repeated-dot': [409, 'it has two dots in a row'],
  'first-character': [407, 'each part has to begin with a letter or a digit'],
  'last-character': [408, 'each part has to end with a letter or a digit'],
  hyphens: [410, 'no part may have "--" in places 3 and 4 unless it begins with "xn--"'],
  punycode: [429, 'a part that begins with "xn--" is no valid punycode'],
  'label-length': [513, 'each part has at most 63 characters'],
  length: [514, 'a domain has at most 253 characters'],
  'top-level': [411, 'its last part may not be a number'],
  'not-qualified': [448, 'it has to have at least two parts'],
  'wildcard-place': [402, 'only the whole first part may be a "*"'],
}
const MAX_DESCRIPTION = 255
const MAX_METADATA = 4_096

export interface DomainRegistrarDeps {
  readonly store: ReservedDomainStore
  readonly registry: EndpointRegistry
  readonly ids: IdSource
  readonly clock: Clock
  /** After a domain was reserved or given up: certificates follow. */
  readonly onChange: (domain: ReservedDomain) => void
}

export interface DomainText {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
}

/** Reserves domains and gives them up. Every refusal is a ServiceError. */
export class DomainRegistrar {
  readonly #deps: DomainRegistrarDeps

  constructor(deps: DomainRegistrarDeps) {
    this.#deps = deps
  }

  reserve(request: DomainText & { domain: string; region?: string | undefined }): ReservedDomain {
    const { store, ids, clock, onChange } = this.#deps
    const { region = '', description = '', metadata = '' } = request
    const domain = request.domain.toLowerCase()
    const problem = findDomainProblem(domain)
    if (problem) {
      const [code, sentence] = REFUSALS[problem]
      throw new ServiceError(code, `The domain ${request.domain} cannot be reserved: ${sentence}.`)
    }
    if (isInternal(domain)) {
      throw new ServiceError(411, `The domain ${domain} is internal: it needs no reservation.`)
    }
    if (store.find(domain)) throw new ServiceError(413, `The domain ${domain} is reserved already.`)
    checkTexts({ description, metadata })
    const reserved: ReservedDomain = {
      id: ids.next('rd'),
      domain,
      region,
      description,
      metadata,
      dnsLabel: randomBytes(10).toString('hex'),
      createdAt: clock.now(),
    }
    store.insert(reserved)
    onChange(reserved)
    return reserved
  }

  update(domain: ReservedDomain, change: DomainText): ReservedDomain {
    const { description = domain.description, metadata = domain.metadata } = change
    checkTexts({ description, metadata })
    const updated = { ...domain, description, metadata }
    this.#deps.store.replace(updated)
    return updated
  }

  /** Gives a domain up; refused with 446 while an endpoint that needs it is online. */
  release(reserved: ReservedDomain): void {
    const { store, registry, onChange } = this.#deps
    const { id, domain } = reserved
    for (const { host } of registry.all()) {
      if (host === domain || isBelow(host, domain)) {
        throw new ServiceError(446, `The domain ${domain} is in use: ${host} is online.`)
      }
    }
    store.delete(id)
    onChange(reserved)
  }
}

function checkTexts({ description, metadata }: { description: string; metadata: string }): void {
  checkLength(description, MAX_DESCRIPTION, 420, 'description')
  checkLength(metadata, MAX_METADATA, 421, 'metadata')
}
