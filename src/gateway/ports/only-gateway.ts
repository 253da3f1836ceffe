import type { Database } from '../../store/database.ts'
import { describeFault } from '../../store/storage-state.ts'
import { ALONE } from '../access/name-claims.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { NoDrain } from './drain.ts'
import type { Membership } from './membership.ts'
import { NoOthers } from './other-gateways.ts'
import { LocalJobs } from './singleton-jobs.ts'

/** Membership of a single gateway, which shares its names with no other. */
export function onlyMember({
  database,
  registry,
  version,
  addresses = [],
}: {
  readonly database: Pick<Database, 'fault'>
  readonly registry: EndpointRegistry
  readonly version: string
  /** Addresses for agents. */
  readonly addresses?: readonly string[]
}): Membership {
  return {
    names: ALONE,
    routes: registry,
    ownRoutes: registry,
    links: { find: () => undefined },
    others: new NoOthers(version, addresses),
    duties: new LocalJobs(),
    drain: new NoDrain(),
    get readiness() {
      const { fault } = database
      return fault === undefined
        ? ({ state: 'ready' } as const)
        : ({ state: 'away', reasons: [describeFault(fault)] } as const)
    },
    start: async () => {},
    stop: async () => {},
  }
}
