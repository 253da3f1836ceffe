import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { text } from 'node:stream/consumers'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { isLoopback } from '../../base/listen-address.ts'
import { Secret } from '../../base/secret.ts'
import { type Config, parseConfig } from '../../config.ts'
import { apiKeyPath } from '../api-key-file.ts'
import type { CommandContext } from '../command-context.ts'
import { localAddress } from '../local-address.ts'
import { Account } from './account.ts'
import { DeviceList } from './device-list.ts'
import { checkDeviceName, readDeviceNames } from './device-names.ts'
import { type DeviceTemplate, planDevices } from './device-plans.ts'
import { ManagementClient } from './management-client.ts'
import { ProgressBar } from './progress-bar.ts'
import { provisionAll } from './provision-all.ts'
import { describeFailures, describeProvision, provisionJson } from './provision-text.ts'

/** Where the devices and the tokens of their APIs are, beside their settings. */
const DEVICE_LIST = 'fleet-devices.jsonl'

/** The options of the command line. */
export interface ProvisionOptions {
  readonly name?: string
  readonly list?: string
  readonly domain?: string
  readonly agentDomain?: string
  readonly apiUrl?: URL
  readonly keyStdin?: boolean
  readonly keyFile?: string
  readonly output: string
  readonly envFile?: string
  readonly authtokenFile?: string
  readonly serverAddr?: string
  readonly caCert?: string
  readonly devices?: string
  readonly tag?: readonly string[]
  readonly rotate?: boolean
  readonly retire?: boolean
  readonly dryRun?: boolean
  readonly json?: boolean
}

/** Runs the command. Sets the exit code to 1 when a device failed. */
export async function provision(context: CommandContext, options: ProvisionOptions): Promise<void> {
  const { stdout, stderr, stop, environment } = context
  const { rotate, retire, dryRun = false, json = false } = options
  const config = parseConfig(environment)
  if (options.name !== undefined) checkDeviceName(options.name)
  const chosen = options.list === undefined ? [options.name ?? ''] : readDeviceNames(options.list)
  const devices = planDevices(chosen, templateOf(options, config))
  const baseUrl = options.apiUrl ?? new URL(`http://${localAddress(config.gateway.apiListen)}`)
  warnOfPlainText(baseUrl, stderr)
  const apiKey = await readApiKey(options, config)
  const client = new ManagementClient({ baseUrl, apiKey, clock: systemClock, stop })
  const account = await Account.open(client)
  const list = DeviceList.read(resolve(options.devices ?? join(options.output, DEVICE_LIST)))
  const bar = new ProgressBar({ stream: stderr, total: devices.length })
  const result = await provisionAll({
    account,
    devices,
    list,
    mode: retire ? 'retire' : rotate ? 'rotate' : 'provision',
    dryRun,
    onDone: (name) => bar.advance(name),
  }).finally(() => bar.clear())
  stdout.write(
    json ? `${provisionJson(result, client.origin, dryRun)}\n` : describeProvision(result, dryRun),
  )
  const failures = describeFailures(result)
  stderr.write(failures)
  if (failures !== '') process.exitCode = 1
}

function templateOf(options: ProvisionOptions, { gateway }: Config): DeviceTemplate {
  const { apiUrl, domain, agentDomain, output, envFile, authtokenFile, serverAddr, caCert } =
    options
  if (apiUrl && domain === undefined) {
    throw new StartError('Say which wildcard the devices may bind: --domain "*.site.example.com".')
  }
  const own = apiUrl ? undefined : ownServer(gateway)
  return {
    domain: domain ?? gateway.reservedDomain,
    agentDomain,
    tags: options.tag,
    outputFolder: output,
    envPath: envFile,
    authtokenPath: authtokenFile,
    serverAddr: serverAddr ?? own?.serverAddr,
    caCertPath: caCert ?? own?.caCertPath,
  }
}

/** How an agent on this machine finds its gateway, as far as the settings tell. */
function ownServer({ agentListen, dataDir }: Config['gateway']) {
  const caCertPath = join(dataDir, 'ca.pem')
  return {
    serverAddr: agentListen.port === 0 ? undefined : localAddress(agentListen),
    caCertPath: existsSync(caCertPath) ? caCertPath : undefined,
  }
}

/** From where somebody said it is; this machine's gateway has left one for its owner. */
async function readApiKey(options: ProvisionOptions, config: Config): Promise<Secret> {
  const { keyStdin, keyFile, apiUrl } = options
  const ownKey = apiUrl ? undefined : apiKeyPath(config.gateway)
  if (keyStdin) return keyOf(await text(process.stdin), 'Standard input')
  if (keyFile !== undefined) return keyOf(readKeyFile(keyFile), keyFile)
  if (config.apiKey) return keyOf(config.apiKey.reveal(), 'SVC_API_KEY')
  if (ownKey && existsSync(ownKey)) return keyOf(readKeyFile(ownKey), ownKey)
  throw new StartError(
    'An API key is needed: give --key-file, pipe it into --key-stdin, or set SVC_API_KEY.',
  )
}

function readKeyFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`The API key in ${path} cannot be read (${code}).`, { cause: error })
  }
}

function keyOf(read: string, where: string): Secret {
  const key = read.trim()
  if (/^[\x21-\x7e]+$/.test(key)) return new Secret(key)
  throw new StartError(`${where} holds no API key: one word is expected.`)
}

function warnOfPlainText({ protocol, hostname, origin }: URL, stderr: NodeJS.WritableStream): void {
  if (protocol === 'https:' || isLoopback(hostname.replace(/^\[|\]$/g, ''))) return
  stderr.write(`warning: the API key and the authtokens travel to ${origin} unencrypted\n`)
}
