import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { RefusedEndpoint } from '../endpoints/endpoint.ts'
import { renamedId } from '../records/resource-id.ts'
import type { ServiceError } from '../records/service-error.ts'
import { sentOptions } from './control-message.ts'

/** Maximum number of remembered refusals; the oldest is dropped first. */
const MOST = 100

/** Endpoints that are not served although the agent considers them online, with the reasons. */
export class RefusedEndpoints {
  readonly #clock: Clock
  readonly #byId = new Map<string, RefusedEndpoint>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  all(): readonly RefusedEndpoint[] {
    return [...this.#byId.values()]
  }

  note(refused: Omit<RefusedEndpoint, 'since'>): void {
    this.#byId.delete(refused.id)
    this.#byId.set(refused.id, { ...refused, since: this.#clock.now() })
    for (const id of this.#byId.keys()) {
      if (this.#byId.size <= MOST) break
      this.#byId.delete(id)
    }
  }

  /** Returns false if it was not present. */
  forget(id: string): boolean {
    return this.#byId.delete(id)
  }
}

const MAX_TEXT = 1_024
const text = z.string().max(MAX_TEXT).catch('')
/** Fields that are read of a bind, even if other fields are malformed. */
const Rebind = z.object({
  Id: z.string().max(MAX_TEXT),
  Proto: text,
  Opts: z.object({ URL: text, Domain: text, Hostname: text, Subdomain: text, Addr: text }).catch({
    ...{ URL: '', Domain: '', Hostname: '', Subdomain: '', Addr: '' },
  }),
  Extra: z.object({ Token: text }).catch({ Token: '' }),
})

/** A bind of an endpoint that the agent had before it reconnected. */
export interface Rebind {
  readonly id: string
  readonly protocol: string
  readonly token: string
  /** URL of the endpoint, as far as the bind tells it; its host is `not-served.invalid` if unknown. */
  readonly url: string
}

/**
 * Temporary refusals, after which an SDK tries again: the session has ended, the gateway failed or does not
 * know yet, or the authtoken binds too often.
 */
const PASSING: ReadonlySet<number> = new Set([351, 802, 803])

export const isPassing = ({ code }: ServiceError): boolean => PASSING.has(code)

/** Undefined for a bind without an id. */
export function readRebind(message: unknown): Rebind | undefined {
  const { data } = Rebind.safeParse(message)
  if (!data?.Id) return undefined
  const { Id: id, Proto: protocol, Opts, Extra } = data
  // The rest of the token proves that the gateway has chosen the address. It must stay private to the agent.
  const [drawn] = Extra.Token.split(' ')
  const host = Opts.Domain || Opts.Hostname || Opts.Subdomain || Opts.Addr || drawn
  const url = /^[a-z]+:\/\/./i.test(Opts.URL)
    ? Opts.URL
    : `${protocol || 'https'}://${Opts.URL.replace(/^.*:\/\//, '') || host || 'not-served.invalid'}`
  return { id, protocol, token: Extra.Token, url }
}

/** The answer to a bind that is accepted but not served yet. */
export function acceptedAs({ id, url, protocol, token }: Rebind, message: unknown): object {
  return {
    ...{ Id: id, URL: url, Proto: protocol, Opts: sentOptions(message) },
    Extra: { Token: token, TunnelID: renamedId(id, 'tn') },
  }
}
