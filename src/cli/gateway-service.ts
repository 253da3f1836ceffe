import { existsSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { systemClock } from '../base/clock.ts'
import type { Closer } from '../base/closer.ts'
import { createDeferred } from '../base/deferred.ts'
import { closeSecretFile, writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { Secret } from '../base/secret.ts'
import type { Config } from '../config.ts'
import { Gateway, type GatewayAddresses } from '../gateway/gateway.ts'
import { prepareDataFolder } from '../store/data-folder.ts'
import { apiKeyPath } from './api-key-file.ts'
import { localAddress } from './local-address.ts'
import { gatewayStopMs } from './serve.ts'
import { readVersion } from './version.ts'

/** Time for all closing work besides running requests. */
const STOP_MS = 9_000

export interface GatewayServiceOptions {
  readonly config: Config['gateway']
  /** Path of the file with the authtoken of the first device. Only the owner can read it. */
  readonly authtokenPath: string
  /** Name of the bot user that owns it. */
  readonly deviceName: string
  /** Another process of this gateway is about to end. */
  readonly hasPredecessor?: boolean
  readonly log: Logger
}

export interface GatewayService {
  readonly gateway: Gateway
  readonly addresses: GatewayAddresses
  /** URL of the management API. */
  readonly managementApi: string
  readonly authtoken: Secret
  /** Opens the management API. */
  readonly apiKey: Secret
  /** Resolves with a reason when only a new process can go on. */
  readonly broken: Promise<string>
}

/** Starts the gateway. Ensures that one authtoken for a device and one API key exist. */
export async function startGateway(
  { config, authtokenPath, deviceName, hasPredecessor = false, log }: GatewayServiceOptions,
  closer: Closer,
): Promise<GatewayService> {
  const broken = createDeferred<string>()
  const gateway = closer.own(
    'gateway',
    new Gateway({
      ...config,
      hasPredecessor,
      version: readVersion(),
      onRestartNeeded: broken.resolve,
      log,
      clock: systemClock,
    }),
    (it) => it.stop(),
    gatewayStopMs(config) + STOP_MS,
  )
  const addresses = await gateway.start()
  const device = { domain: config.reservedDomain, name: deviceName }
  const authtoken = await keepSecret(authtokenPath, log, async (kept) => {
    const provisioned = await gateway.provision({ ...device, authtoken: kept })
    return provisioned.authtoken
  })
  const apiKey = await keepSecret(apiKeyPath(config), log, (kept) =>
    gateway.provisionApiKey({ description: 'the owner of this gateway', apiKey: kept }),
  )
  const managementApi = `http://${localAddress(addresses.api)}`
  return { gateway, addresses, managementApi, authtoken, apiKey, broken: broken.promise }
}

/**
 * Returns the secret from `provision`, which gets the secret that the last start left at `path`. The gateway
 * keeps only hashes. So the plain text is on disk before it is used.
 */
async function keepSecret(
  path: string,
  log: Logger,
  provision: (kept: Secret | undefined) => Promise<Secret>,
): Promise<Secret> {
  if (closeSecretFile(path))
    log.warn({ file: path }, 'other users could read this file, replace the credential in it')
  const kept = existsSync(path) ? readFileSync(path, 'utf8').trim() : ''
  const secret = await provision(kept === '' ? undefined : new Secret(kept))
  if (secret.reveal() !== kept) {
    prepareDataFolder(dirname(path), log)
    writeFileDurably(path, `${secret.reveal()}\n`)
  }
  return secret
}
