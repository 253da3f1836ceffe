import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { RefusedEndpoint } from '../endpoints/endpoint.ts'
import { renamedId } from '../records/resource-id.ts'
import type { ServiceError } from '../records/service-error.ts'
import { sentOptions } from './control-message.ts'

/** As many are remembered; the oldest goes first. */
const MOST = 100

/** Endpoints that an agent takes for online and that the gateway does not serve, with the reasons. */
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

  /** False when it was not among them. */
  forget(id: string): boolean {
    return this.#byId.delete(id)
  }
}

const MAX_TEXT = 1_024
const text = z.string().max(MAX_TEXT).catch('')
/** What is read of a bind that may have fields of any form. */
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
  /** As far as the bind says where the endpoint was. */
  readonly url: string
}

/**
 * Refusals that pass by themselves: the session has ended, the gateway failed or does not know yet, or the
 * authtoken binds too often for the moment. An SDK that hears one tries again.
 */
const PASSING: ReadonlySet<number> = new Set([351, 802, 803])

export const isPassing = ({ code }: ServiceError): boolean => PASSING.has(code)

/** Undefined for a bind without an id. */
export function readRebind(message: unknown): Rebind | undefined {
  const { data } = Rebind.safeParse(message)
  if (!data?.Id) return undefined
  const { Id: id, Proto: protocol, Opts, Extra } = data
  // What follows the address in a token proves that the gateway has chosen it: it is the agent's alone.
  const [drawn] = Extra.Token.split(' ')
  const host = Opts.Domain || Opts.Hostname || Opts.Subdomain || Opts.Addr || drawn
  const url = /^[a-z]+:\/\/./i.test(Opts.URL)
    ? Opts.URL
    : `${protocol || 'https'}://${Opts.URL.replace(/^.*:\/\//, '') || host || 'not-served.invalid'}`
  return { id, protocol, token: Extra.Token, url }
}

/** The answer to a bind that is accepted, and not served yet. */
export function acceptedAs({ id, url, protocol, token }: Rebind, message: unknown): object {
  return {
    ...{ Id: id, URL: url, Proto: protocol, Opts: sentOptions(message) },
    Extra: { Token: token, TunnelID: renamedId(id, 'tn') },
  }
}
