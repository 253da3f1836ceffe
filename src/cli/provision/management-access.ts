import { existsSync, readFileSync } from 'node:fs'
import process from 'node:process'
import { text } from 'node:stream/consumers'
import { InvalidArgumentError, Option } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { isLoopback } from '../../base/listen-address.ts'
import { Secret } from '../../base/secret.ts'
import { type Config, parseConfig } from '../../config.ts'
import { apiKeyPath } from '../api-key-file.ts'
import type { CommandContext } from '../command-context.ts'
import { stoppedGateway } from '../local/stopped-service.ts'
import { localAddress } from '../local-address.ts'
import { gatewaySurroundings } from '../surroundings.ts'
import { ManagementClient } from './management-client.ts'

/** Which gateway is asked, and with which key; unset: that of this machine. */
export interface ManagementOptions {
  readonly apiUrl?: URL
  readonly keyStdin?: boolean
  readonly keyFile?: string
}

/** The options by which a person says that. */
export function managementOptions(): readonly Option[] {
  return [
    new Option(
      '--api-url <url>',
      'URL of the management API; default: the gateway on this machine',
    ).argParser(parseUrl),
    new Option('--key-stdin', 'read the API key from standard input'),
    new Option('--key-file <file>', 'read the API key from a file; default: SVC_API_KEY').conflicts(
      'keyStdin',
    ),
  ]
}

/**
 * The settings for that gateway. Only root may read those of an installed gateway, so they are not read for
 * another gateway.
 */
export function managementConfig(
  { environment, root }: Pick<CommandContext, 'environment' | 'root'>,
  { apiUrl }: Pick<ManagementOptions, 'apiUrl'>,
): Config {
  if (apiUrl) return parseConfig(environment)
  return parseConfig(gatewaySurroundings(environment, undefined, root).environment)
}

/** Throws a StartError that names missing options. */
export async function openManagement(
  context: CommandContext,
  options: ManagementOptions,
  config: Config,
): Promise<ManagementClient> {
  const { stderr, stop } = context
  const baseUrl = options.apiUrl ?? new URL(`http://${localAddress(config.gateway.apiListen)}`)
  warnOfPlainText(baseUrl, stderr)
  const apiKey = await readApiKey(options, config)
  const startRemedy = () => (options.apiUrl ? undefined : stoppedGateway(context))
  return new ManagementClient({ baseUrl, apiKey, clock: systemClock, stop, startRemedy })
}

/**
 * Reads the key from the given source. Default: the file that the gateway on this machine leaves for its
 * owner.
 */
async function readApiKey(options: ManagementOptions, config: Config): Promise<Secret> {
  const { keyStdin, keyFile, apiUrl } = options
  const ownKey = apiUrl ? undefined : apiKeyPath(config.gateway)
  if (keyStdin) return keyOf(await text(process.stdin), 'Standard input')
  if (keyFile !== undefined) return keyOf(readKeyFile(keyFile), keyFile)
  if (config.apiKey) return keyOf(config.apiKey.reveal(), 'SVC_API_KEY')
  if (ownKey && existsSync(ownKey)) return keyOf(readKeyFile(ownKey), ownKey)
  const missing = ownKey
    ? `No gateway has left its API key in ${ownKey}. Run this command on the machine of the gateway, or give its key`
    : 'API key required. Give it'
  throw new StartError(`${missing} with --key-file, --key-stdin or SVC_API_KEY.`)
}

function readKeyFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot read the API key in ${path} (${code}).`, { cause: error })
  }
}

function keyOf(read: string, where: string): Secret {
  const key = read.trim()
  if (/^[\x21-\x7e]+$/.test(key)) return new Secret(key)
  throw new StartError(`${where} contains no API key. Expected a single word.`)
}

function warnOfPlainText({ protocol, hostname, origin }: URL, stderr: NodeJS.WritableStream): void {
  if (protocol === 'https:' || isLoopback(hostname.replace(/^\[|\]$/g, ''))) return
  stderr.write(`warning: the API key and all data are sent to ${origin} unencrypted\n`)
}

function parseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isPlain = url && /^https?:$/.test(url.protocol) && !url.username && !url.search && !url.hash
  if (isPlain) return url
  throw new InvalidArgumentError('Use a URL, such as https://api.ngrok.com.')
}
