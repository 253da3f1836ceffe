import { onTestFinished } from 'vitest'
import { Authority } from '../../src/gateway/authority.ts'
import { CredentialIssuer } from '../../src/gateway/credential-issuer.ts'
import { DomainRegistrar } from '../../src/gateway/domain-registrar.ts'
import { EndpointRegistry } from '../../src/gateway/endpoint-registry.ts'
import { openGatewayDatabase } from '../../src/gateway/gateway-database.ts'
import { IdSource } from '../../src/gateway/resource-id.ts'
import { captureLog } from './captured-log.ts'
import { ManualClock } from './manual-clock.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** The gateway's stores and those who change them, on a real database in a folder of its own. */
export function openGatewayStores(folder = temporaryFolder(), { hasAcme = false } = {}) {
  const clock = new ManualClock()
  const stores = openGatewayDatabase(folder, captureLog().log, clock)
  onTestFinished(() => stores.database.close())
  const ids = new IdSource(clock)
  const registry = new EndpointRegistry()
  const changedCredentials: string[] = []
  const changedDomains: string[] = []
  const issuer = new CredentialIssuer({
    ...stores,
    ids,
    clock,
    onCredentialChange: (id) => changedCredentials.push(id),
  })
  const registrar = new DomainRegistrar({
    store: stores.domains,
    registry,
    ids,
    clock,
    hasAcme,
    onChange: ({ domain }) => changedDomains.push(domain),
  })
  const authority = new Authority(stores)
  return {
    ...stores,
    folder,
    clock,
    ids,
    registry,
    issuer,
    registrar,
    authority,
    changedCredentials,
    changedDomains,
  }
}
