import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { StartError } from '../../base/app-error.ts'
import type { Config } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { agentReach } from '../local-address.ts'
import { Account } from './account.ts'
import { clusterAddresses } from './cluster-addresses.ts'
import { DEVICE_LIST, DeviceList } from './device-list.ts'
import {
  checkDeviceName,
  type DeviceTemplate,
  planDevices,
  readDeviceNames,
} from './device-plans.ts'
import { type ManagementOptions, managementConfig, openManagement } from './management-access.ts'
import { ProgressBar } from './progress-bar.ts'
import { provisionAll } from './provision-all.ts'
import {
  describeFailures,
  describeProvision,
  describeUnknown,
  provisionJson,
} from './provision-text.ts'

/** The options of the command line. */
export interface ProvisionOptions extends ManagementOptions {
  readonly name?: string
  readonly list?: string
  readonly domain?: string
  readonly agentDomain?: string
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
  const { stdout, stderr } = context
  const { rotate, retire, dryRun = false, json = false } = options
  const config = managementConfig(context, options)
  if (options.name !== undefined) checkDeviceName(options.name)
  const chosen = options.list === undefined ? [options.name ?? ''] : readDeviceNames(options.list)
  const own = options.apiUrl ? undefined : ownServer(config.gateway)
  const template = templateOf(options, config, own)
  const planned = planDevices(chosen, template)
  const client = await openManagement(context, options, config)
  const account = await Account.open(client)
  const isOwnAddress = own !== undefined && options.serverAddr === undefined && !retire
  const serverAddr = isOwnAddress
    ? await clusterAddresses(client, own.serverAddr)
    : template.serverAddr
  const devices = planned.map((device) => ({ ...device, serverAddr }))
  const list = DeviceList.read(resolve(options.devices ?? join(options.output, DEVICE_LIST)))
  if (list.incomplete !== undefined) {
    stderr.write(`warning: ${list.incomplete} A run for the device adds it again.\n`)
  }
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
  if (!json && !retire) stdout.write(copyHint(template, own))
  if (own?.advice !== undefined && !retire && options.serverAddr === undefined) {
    stderr.write(`warning: ${own.advice}, or use --server-addr and --ca-cert\n`)
  }
  const failures = describeFailures(result)
  stderr.write(failures)
  if (failures !== '') process.exitCode = 1
  if (!retire) return
  stderr.write(describeUnknown(result, list.path))
  // A repeated call for many devices may find only some of them.
  if (result.devices.every(({ steps }) => steps.length === 0)) process.exitCode = 1
}

/** The gateway of this machine, as a device finds it. */
interface OwnServer {
  readonly serverAddr: string | undefined
  /** Path on the device. */
  readonly caCertPath: string | undefined
  /** Path on this machine, if the file has to be copied. */
  readonly copied: string | undefined
  readonly advice: string | undefined
}

function templateOf(
  options: ProvisionOptions,
  { gateway }: Config,
  own: OwnServer | undefined,
): DeviceTemplate {
  const { apiUrl, domain, agentDomain, output, envFile, authtokenFile, serverAddr, caCert } =
    options
  if (apiUrl && domain === undefined) {
    throw new StartError('Set the wildcard domain of the devices: --domain "*.site.example.com".')
  }
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

/** Where operations.md puts it. */
const CA_ON_DEVICE = '/etc/device-agent/ca.pem'

/** The addresses as far as the settings tell. With a loopback address, the device is this machine. */
function ownServer({ agentListen, publicNames, dataDir }: Config['gateway']): OwnServer {
  const caCertPath = join(dataDir, 'ca.pem')
  const { addresses, isLocal, advice } = agentReach(agentListen, publicNames)
  const [serverAddr] = addresses
  if (!existsSync(caCertPath))
    return { serverAddr, caCertPath: undefined, copied: undefined, advice }
  return isLocal || serverAddr === undefined
    ? { serverAddr, caCertPath, copied: undefined, advice }
    : { serverAddr, caCertPath: CA_ON_DEVICE, copied: caCertPath, advice }
}

function copyHint({ caCertPath }: DeviceTemplate, own: OwnServer | undefined): string {
  if (own?.copied === undefined || caCertPath !== own.caCertPath) return ''
  return `\nCopy ${own.copied} to ${caCertPath} on each device.\n`
}
