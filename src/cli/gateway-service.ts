import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { systemClock } from '../base/clock.ts'
import type { Closer } from '../base/closer.ts'
import { writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { Secret } from '../base/secret.ts'
import type { Config } from '../config.ts'
import { Gateway, type GatewayAddresses } from '../gateway/gateway.ts'

export interface GatewayServiceOptions {
  readonly config: Config['gateway']
  /** Where the authtoken of the first device is kept between starts, readable by the owner. */
  readonly authtokenPath: string
  /** Name of the bot user that owns it. */
  readonly deviceName: string
  readonly log: Logger
}

export interface GatewayService {
  readonly gateway: Gateway
  readonly addresses: GatewayAddresses
  readonly authtoken: Secret
}

/** Starts the gateway and makes sure that one device may connect to it. */
export async function startGateway(
  { config, authtokenPath, deviceName, log }: GatewayServiceOptions,
  closer: Closer,
): Promise<GatewayService> {
  const gateway = closer.own('gateway', new Gateway({ ...config, log, clock: systemClock }), (it) =>
    it.stop(),
  )
  const addresses = await gateway.start()
  const kept = existsSync(authtokenPath) ? readFileSync(authtokenPath, 'utf8').trim() : ''
  const { authtoken } = gateway.provision({
    domain: config.reservedDomain,
    name: deviceName,
    authtoken: kept === '' ? undefined : new Secret(kept),
  })
  // The gateway keeps hashes only, so the plain text has to be on disk before anybody relies on it.
  if (authtoken.reveal() !== kept) {
    mkdirSync(dirname(authtokenPath), { recursive: true, mode: 0o700 })
    writeFileDurably(authtokenPath, `${authtoken.reveal()}\n`)
  }
  return { gateway, addresses, authtoken }
}
