import { mkdirSync } from 'node:fs'
import { systemClock } from '../src/base/clock.ts'
import { createLogger } from '../src/base/logger.ts'
import { CredentialIssuer } from '../src/gateway/access/credential-issuer.ts'
import { openGatewayDatabase } from '../src/gateway/gateway-database.ts'
import { IdSource } from '../src/gateway/records/resource-id.ts'
import { progress } from './tools.ts'
import type { Device } from './wire-agent.ts'

const DEVICES_PER_SITE = 100

export interface Filling {
  readonly devices: number
  readonly apiKeys: number
  /** Every device binds a name below it. */
  readonly domain: string
}

export interface FilledGateway {
  readonly devices: readonly Device[]
  readonly apiKeys: readonly string[]
  /** Milliseconds of one acknowledged write. */
  readonly writeMs: number
}

/**
 * Fills the data folder of a gateway that does not run, by its own issuer and stores: each
 * credential is on disk before the next is made, as if it had been asked for by itself.
 */
export async function fillGateway(
  folder: string,
  { devices, apiKeys, domain }: Filling,
): Promise<FilledGateway> {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const clock = systemClock
  const stores = openGatewayDatabase(folder, { log: createLogger('silent'), clock })
  const ids = new IdSource(clock)
  const issuer = new CredentialIssuer({ ...stores, ids, clock })
  let ownerId = ''
  const startedAt = performance.now()
  const made: Device[] = []
  for (let index = 0; index < devices; index += 1) {
    const site = Math.floor(index / DEVICES_PER_SITE)
    if (index % 1_000 === 0) progress(`made ${index} of ${devices} credentials`)
    if (index % DEVICES_PER_SITE === 0) {
      ownerId = (await issuer.createBotUser({ name: `site ${site}` })).id
    }
    const { authtoken } = await issuer.createCredential({
      ownerId,
      description: `device ${index} of site ${site}`,
      metadata: JSON.stringify({ site, serial: `A-${1_000_000 + index}` }),
      acl: [`bind:*.${domain}`],
    })
    made.push({ authtoken: authtoken.reveal(), host: `device${index}.${domain}` })
  }
  const writeMs = (performance.now() - startedAt) / (devices + devices / DEVICES_PER_SITE)
  const keys: string[] = []
  for (let index = 0; index < apiKeys; index += 1) {
    const { token } = await issuer.createApiKey({ description: `bench ${index}` })
    keys.push(token.reveal())
  }
  stores.database.close()
  return { devices: made, apiKeys: keys, writeMs }
}
