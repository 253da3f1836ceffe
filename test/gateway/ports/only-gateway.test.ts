import { expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts'
import { onlyMember } from '../../../src/gateway/ports/only-gateway.ts'
import type { StorageFault } from '../../../src/store/storage-state.ts'

it('sends visitors away while its database has a fault', () => {
  const database: { fault: StorageFault | undefined } = { fault: undefined }
  const registry = new EndpointRegistry({ clock: systemClock })
  const member = onlyMember({ database, registry, version: '' })
  expect(member.readiness).toEqual({ state: 'ready' })
  database.fault = 'unwritable'
  expect(member.readiness).toEqual({ state: 'away', reasons: [expect.any(String)] })
})
