import { isIP, isIPv6 } from 'node:net'
import { parse } from 'dotenv'
import { StartError } from '../../base/app-error.ts'
import { isLoopback, parseListenAddress } from '../../base/listen-address.ts'
import { parsePublicNames } from '../../base/net/public-names.ts'
import { type Config, parseConfig } from '../../config.ts'
import { type EnvSettings, mergeSettings, readIfThere } from '../provision/env-file.ts'

/** Default of `--acme-directory`. */
export const PUBLIC_AUTHORITY = 'https://acme-v02.api.letsencrypt.org/directory'

/** Answers of the owner: options, or what was asked at the terminal. */
export interface SetupAnswers {
  /** Wildcard: `*.site.example.com`. */
  readonly domain: string
  /** Public DNS name of the gateway. */
  readonly name: string
  /** Addresses by which the Internet reaches this server, if it is behind NAT. */
  readonly addresses: readonly string[]
  /** Contact for the ACME account; undefined: no change. */
  readonly email?: string | undefined
  readonly acmeDirectory?: string | undefined
  readonly dnsListen?: string | undefined
  readonly database?: string | undefined
  /** Parent of DNS targets, the same on all nodes. */
  readonly cnameBase?: string | undefined
  readonly peerListen?: string | undefined
  readonly joinTokenFile?: string | undefined
  /** Undefined: the port in the settings, else 80, 443 and 4443. */
  readonly httpPort?: number | undefined
  readonly httpsPort?: number | undefined
  readonly agentPort?: number | undefined
}

export interface SetupPlace {
  /** Settings file of the service. */
  readonly path: string
  /** Folder of its data, as systemd creates it. */
  readonly stateDirectory: string
  readonly machineAddresses: readonly string[]
}

/** The settings after a setup. */
export interface SetupPlan {
  /** Settings of the file before, with those of the setup. */
  readonly environment: Readonly<Record<string, string>>
  /** Settings that the setup adds or changes. */
  readonly changed: EnvSettings
  readonly config: Config['gateway']
}

const LISTENERS = [
  ['GATEWAY_HTTP_LISTEN', 'httpPort', 80, '--http-port'],
  ['GATEWAY_HTTPS_LISTEN', 'httpsPort', 443, '--https-port'],
  ['GATEWAY_AGENT_LISTEN', 'agentPort', 4443, '--agent-port'],
] as const

/**
 * Works out the settings of a gateway. Throws a StartError if the file cannot be read, or has settings that
 * contradict the answers.
 */
export function planSettings(
  { path, stateDirectory, machineAddresses }: SetupPlace,
  answers: SetupAnswers,
): SetupPlan {
  const before = readSettings(path)
  const wanted = {
    GATEWAY_PUBLIC_NAMES: publicNames(before.GATEWAY_PUBLIC_NAMES ?? '', answers, machineAddresses),
    ...listeners(before, answers, machineAddresses.some(isIPv6)),
    ...firstDomain(before, answers),
    ...acmeSettings(before, answers),
    ...clusterSettings(before, answers),
  }
  const changed = Object.fromEntries(
    Object.entries(wanted).filter(([name, value]) => before[name] !== value),
  )
  const environment = { ...before, ...wanted }
  const config = parsed(path, { STATE_DIRECTORY: stateDirectory, ...environment }, changed)
  return { environment, changed, config }
}

/** The settings of a file; none if it is missing. */
export function readSettings(path: string): Readonly<Record<string, string>> {
  try {
    return parse(readIfThere(path) ?? '')
  } catch (error) {
    if (!(error instanceof StartError)) throw error
    const remedy = 'Run this command with sudo, and check that the path is a file.'
    throw new StartError(`${error.message} ${remedy}`, { cause: error })
  }
}

function parsed(
  path: string,
  environment: Readonly<Record<string, string>>,
  changed: EnvSettings,
): Config['gateway'] {
  try {
    // Refuses values that a settings file cannot hold. Lines of the owner stay as they are.
    mergeSettings('', changed)
    return parseConfig(environment).gateway
  } catch (error) {
    if (!(error instanceof StartError)) throw error
    throw new StartError(
      `These settings cannot be used together in ${path}: ${error.message} Nothing was written.`,
      { cause: error },
    )
  }
}

/**
 * The name first, then all earlier names: devices may still use them. New addresses replace earlier ones, which
 * a server has after a move. Addresses of the machine stay.
 */
function publicNames(
  before: string,
  { name, addresses }: SetupAnswers,
  machineAddresses: readonly string[],
): string {
  const hostOf = (text: string) => {
    const [first] = [parsePublicNames([text])].flatMap((it) => ('problem' in it ? [] : it))
    return first?.host
  }
  const isKept = (text: string) => {
    const host = hostOf(text)
    if (addresses.length === 0 || host === undefined || isIP(host) === 0) return true
    return [...addresses, ...machineAddresses].includes(host)
  }
  const earlier = before.split(/[\s,]+/).filter((text) => text !== '')
  const texts = earlier.filter(isKept)
  const named = texts.find((text) => hostOf(text) === name) ?? name
  const added = addresses.filter((address) => !texts.some((text) => hostOf(text) === address))
  const all = [
    named,
    ...texts.filter((text) => text !== named),
    ...added.map((address) => (isIP(address) === 6 ? `[${address}]` : address)),
  ]
  // Unchanged lists keep their spelling.
  return all.join() === earlier.join() ? before : all.join(',')
}

function listeners(
  before: Readonly<Record<string, string>>,
  answers: SetupAnswers,
  hasIPv6: boolean,
): Record<string, string> {
  const everywhere = hasIPv6 ? '[::]' : '0.0.0.0'
  const settings: Record<string, string> = {}
  for (const [name, key, port, option] of LISTENERS) {
    const kept = before[name]
    const asked = answers[key]
    if (kept === undefined || asked !== undefined) {
      const host = kept?.replace(/:\d+$/, '')
      const isOpen = host !== undefined && !isLoopback(host.replace(/^\[|\]$/g, ''))
      settings[name] = `${isOpen ? host : everywhere}:${asked ?? port}`
    } else if (
      isLoopback(parseListenAddress(kept)?.host ?? '') &&
      before.GATEWAY_TRUSTED_PROXIES === undefined
    ) {
      throw new StartError(
        `${name}=${kept} accepts no connection from other machines. Remove this line from the settings, ` +
          `use ${option}, or set GATEWAY_TRUSTED_PROXIES if a proxy is in front. Nothing was written.`,
      )
    }
  }
  return settings
}

/** The setting counts at the first start only. Later domains are reserved at the running gateway. */
function firstDomain(before: Readonly<Record<string, string>>, { domain }: SetupAnswers) {
  return before.GATEWAY_RESERVED_DOMAIN === undefined ? { GATEWAY_RESERVED_DOMAIN: domain } : {}
}

function acmeSettings(
  before: Readonly<Record<string, string>>,
  { email, acmeDirectory, dnsListen }: SetupAnswers,
): Record<string, string> {
  const isAsked = email !== undefined || acmeDirectory !== undefined
  if (isAsked && before.GATEWAY_TLS_CERT !== undefined) {
    throw new StartError(
      'GATEWAY_TLS_CERT is set, so the gateway never serves a certificate that it orders. Remove ' +
        'GATEWAY_TLS_CERT and GATEWAY_TLS_KEY from the settings, or leave --email out. Nothing was written.',
    )
  }
  const directory =
    acmeDirectory ?? before.GATEWAY_ACME_DIRECTORY ?? (isAsked ? PUBLIC_AUTHORITY : undefined)
  if (directory === undefined) {
    if (dnsListen === undefined) return {}
    throw new StartError(
      '--dns-listen is only used for certificates of an ACME authority. Add --email or --acme-directory, or ' +
        'leave it out. Nothing was written.',
    )
  }
  return {
    GATEWAY_ACME_DIRECTORY: directory,
    ...(email !== undefined && { GATEWAY_ACME_EMAIL: email }),
    ...(dnsListen !== undefined && { GATEWAY_DNS_LISTEN: dnsListen }),
  }
}

function clusterSettings(
  before: Readonly<Record<string, string>>,
  { database, cnameBase, peerListen, joinTokenFile }: SetupAnswers,
): Record<string, string> {
  const known = before.GATEWAY_DATABASE_URL
  if (database !== undefined && known !== undefined && database !== known) {
    throw new StartError(
      'GATEWAY_DATABASE_URL is set to another database. Leave --database out to keep it, or change the ' +
        'setting yourself: the records stay in the old database. Nothing was written.',
    )
  }
  if (database !== undefined && (cnameBase ?? before.GATEWAY_CNAME_BASE) === undefined) {
    throw new StartError(
      'A cluster requires --cname-base, a DNS name that leads to its gateways, such as gateway.example.com. Use the ' +
        'same name on all nodes. Nothing was written.',
    )
  }
  return {
    ...(database !== undefined && { GATEWAY_DATABASE_URL: database }),
    ...(peerListen !== undefined && { GATEWAY_PEER_LISTEN: peerListen }),
    ...(joinTokenFile !== undefined && { GATEWAY_JOIN_TOKEN_FILE: joinTokenFile }),
    ...(cnameBase !== undefined && { GATEWAY_CNAME_BASE: cnameBase }),
  }
}
