import type { Closer } from '../../base/closer.ts'
import { agentAddresses } from '../../base/net/public-names.ts'
import type { Database } from '../../store/database.ts'
import { describeFault } from '../../store/storage-state.ts'
import { ALONE } from '../access/name-claims.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { openGatewayDatabase } from '../records/gateway-database.ts'
import { NoDrain } from './drain.ts'
import type { Membership, OpenRecords, RecordsOptions } from './membership.ts'
import { NoOthers } from './other-gateways.ts'
import { LocalJobs } from './singleton-jobs.ts'

/** Opens the records of a single gateway. Throws a StartError if a person must act. */
export function openOnlyGateway(options: RecordsOptions, closer: Closer): OpenRecords {
  const { dataDir, version = '', agentListen, publicNames } = options
  const addresses = agentAddresses(agentListen, publicNames)
  const stores = openGatewayDatabase(dataDir, options)
  const { database } = stores
  closer.own('gateway database', database, (it) => it.close())
  return {
    stores,
    orders: undefined,
    named: (text) => text,
    join: ({ registry }) => onlyMember({ database, registry, version, addresses }),
  }
}

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
