import { isIP } from 'node:net'
import { Command, InvalidArgumentError, Option } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { parseDuration } from '../../base/clock.ts'
import { parsePublicNames } from '../../base/net/public-names.ts'
import { databaseUrl } from '../../settings/database-url.ts'
import {
  email,
  type Form,
  httpsUrl,
  listen,
  Problem,
  whole,
  wildcardDomain,
} from '../../settings/forms.ts'
import type { CommandContext } from '../command-context.ts'
import { askText, askYes, canAsk } from '../local/prompt.ts'
import type { SetupRun } from './setup.ts'
import { readSettings, type SetupAnswers } from './setup-plan.ts'

/** Asks at the terminal. Throws a StartError if the input ends. */
type Ask = (question: string) => Promise<string>

export interface SetupOptions
  extends Partial<Omit<SetupAnswers, 'addresses'>>,
    Pick<SetupRun, 'wait' | 'dryRun' | 'json'> {
  readonly address?: readonly string[]
  readonly yes?: boolean
}

/** `device-agent gateway setup`: from an installed program to a gateway with names and certificates. */
export function setupCommand(context: CommandContext): Command {
  const command = new Command('setup')
    .description('prepare this server: settings, service, DNS and certificates')
    .addHelpText(
      'after',
      '\nIt asks for missing answers at a terminal. Run it again at any time: it changes only differences.\n' +
        '\nExit codes:\n  0  done\n  1  refused or failed\n  3  work left: see the output',
    )
  for (const option of setupOptions()) command.addOption(option)
  return command.action(async (_options: object, self: Command) => {
    // The command above it knows --json, too, and takes it.
    const options = self.optsWithGlobals<SetupOptions>()
    const { setup, settingsPlace } = await import('./setup.ts')
    const canConfirm = canAsk() && !options.yes
    const ask = (question: string) =>
      askText(context, question, 'No answer was given. Nothing was written.')
    const before = readSettings(settingsPlace(context).path)
    const answers = await completeAnswers(options, before, canConfirm ? ask : undefined)
    if (!answers) return self.error('error: use --name and --domain')
    const confirm = () => askYes(context, 'Write these settings?')
    await setup(context, answers, { ...options, confirm: canConfirm ? confirm : undefined })
  })
}

function setupOptions(): Option[] {
  const option = (flags: string, about: string, parse: (text: string) => unknown) =>
    new Option(flags, about).argParser(parse)
  return [
    option(
      '--domain <domain>',
      'domain for devices, such as *.site.example.com or site.example.com',
      parseDomain,
    ),
    option(
      '--name <name>',
      'public DNS name of this gateway, such as gateway.example.com',
      parseName,
    ),
    new Option(
      '--address <address...>',
      'public addresses of this server, if its interfaces do not have them (NAT). They replace earlier ones',
    ).argParser((text: string, all: readonly string[] = []) => [...all, parseAddress(text)]),
    option(
      '--email <address>',
      'contact for public certificates; accepts the terms of the ACME authority',
      formOf(email),
    ),
    option(
      '--acme-directory <url>',
      "directory URL of the ACME authority; default: Let's Encrypt",
      formOf(httpsUrl),
    ),
    option(
      '--dns-listen <host:port>',
      'address of a DNS server for wildcard certificates; without it, each name gets a certificate',
      formOf(listen),
    ),
    option('--database <url>', 'PostgreSQL database of a cluster of gateways', parseDatabase),
    option(
      '--cname-base <name>',
      'parent domain of DNS targets, the same on all nodes of a cluster',
      parseName,
    ),
    option(
      '--peer-listen <host:port>',
      'address for the other gateways of the cluster',
      formOf(listen),
    ),
    new Option('--join-token-file <file>', 'join token for a further gateway of the cluster'),
    option('--http-port <port>', 'port for visitors over HTTP; default: 80', parsePort),
    option('--https-port <port>', 'port for visitors over HTTPS; default: 443', parsePort),
    option('--agent-port <port>', 'port for devices; default: 4443', parsePort),
    option(
      '--wait [duration]',
      'check again until DNS and certificates are ready, or for a duration such as 30m',
      parseWait,
    ),
    new Option('--dry-run', 'show the changes without making them'),
    new Option('--yes', 'ask no questions'),
    new Option('--json', 'print one JSON line on stdout'),
  ]
}

/** The answers from options, the settings of before, and questions. Undefined if an answer is missing. */
export async function completeAnswers(
  options: SetupOptions,
  before: Readonly<Record<string, string>>,
  ask: Ask | undefined,
): Promise<SetupAnswers | undefined> {
  const known = parsePublicNames(
    (before.GATEWAY_PUBLIC_NAMES ?? '').split(/[\s,]+/).filter(Boolean),
  )
  const knownName =
    'problem' in known
      ? undefined
      : known.find(({ host }) => /[a-z]/.test(host) && !host.includes(':'))
  const name =
    options.name ??
    knownName?.host ??
    (await asked(ask, 'Public DNS name of this gateway, such as gateway.example.com: ', parseName))
  const domain =
    options.domain ??
    before.GATEWAY_RESERVED_DOMAIN ??
    (await asked(ask, 'Domain for devices, such as *.site.example.com: ', parseDomain))
  if (name === undefined || domain === undefined) return undefined
  const isOpen = before.GATEWAY_ACME_DIRECTORY ?? before.GATEWAY_TLS_CERT
  const contact =
    options.email ??
    (isOpen === undefined && options.acmeDirectory === undefined
      ? await asked(
          ask,
          "Email for certificates of Let's Encrypt, accepts its terms (empty: no public certificates): ",
          (text) => (text === '' ? undefined : formOf(email)(text)),
        )
      : undefined)
  const { address: addresses = [], ...given } = options
  return { ...given, name, domain: domain.toLowerCase(), addresses, email: contact }
}

/** Asks until an answer is valid. Undefined if the owner cannot be asked. */
async function asked<T>(
  ask: Ask | undefined,
  question: string,
  parse: (text: string) => T,
): Promise<T | undefined> {
  for (let shown = question; ask; ) {
    const text = await ask(shown)
    try {
      return parse(text.trim())
    } catch (error) {
      shown = `${(error as Error).message}\n${question}`
    }
  }
  return undefined
}

function parseDomain(text: string): string {
  const wildcard = text.startsWith('*.') ? text : `*.${text}`
  return formOf(wildcardDomain)(wildcard).toLowerCase()
}

function parseName(text: string): string {
  const names = parsePublicNames([text])
  if ('problem' in names) throw new InvalidArgumentError(`It is not usable: ${names.problem}.`)
  const [{ host, port } = { host: '', port: undefined }] = names
  if (!host.includes('.') || !/[a-z]/.test(host) || host.includes(':') || port !== undefined) {
    throw new InvalidArgumentError(
      'Use a DNS name, such as gateway.example.com. See also --address.',
    )
  }
  return host
}

function parseAddress(text: string): string {
  if (isIP(text) !== 0) return text
  throw new InvalidArgumentError('Use an IPv4 or IPv6 address, such as 203.0.113.7.')
}

function parsePort(text: string): number {
  const port = whole(1, 65_535).read(text)
  if (!(port instanceof Problem)) return port
  throw new InvalidArgumentError(`It ${port.message}.`)
}

function parseWait(text: string | true): number | true {
  if (text === true) return true
  const ms = parseDuration(text)
  if (ms !== undefined && ms > 0) return ms
  throw new InvalidArgumentError('Use a duration such as 30s, 10m or 2h.')
}

/** Commander's own error would repeat the text, which may have a password. */
function parseDatabase(text: string): string {
  const address = databaseUrl.read(text)
  if (!(address instanceof Problem)) return text
  throw new StartError(`The URL of --database ${address.message}. Nothing was written.`)
}

/** The text, if it has the form of a setting. */
function formOf(form: Form<unknown>): (text: string) => string {
  return (text) => {
    const value = form.read(text)
    if (!(value instanceof Problem)) return text
    throw new InvalidArgumentError(`It ${value.message}.`)
  }
}
