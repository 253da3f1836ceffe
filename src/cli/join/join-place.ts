import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { parse as parseDotenv } from 'dotenv'
import { PASSED_AUTHTOKEN } from '../../agent/authtoken-source.ts'
import { StartError } from '../../base/app-error.ts'
import { makeFolder, writeFileDurably } from '../../base/file.ts'
import { formatListenAddress, isIPv6Address } from '../../base/listen-address.ts'
import { Secret } from '../../base/secret.ts'
import type { Joined } from '../../join/join-client.ts'
import { type JoinString, pinOf } from '../../join/join-string.ts'
import { MAX_SERVERS } from '../../settings/forms.ts'
import { parseSettings } from '../../settings/settings.ts'
import { type EnvSettings, mergeSettings, readIfThere } from '../provision/env-file.ts'
import { envTemplate } from '../service/env-template.ts'
import { settingsPathOf } from '../service/service-files.ts'
import { INSTALLED, JOIN_RECORD } from '../surroundings.ts'

const PEM = /-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g

/** Files with the settings of a device, where a join writes them. */
export interface JoinPlace {
  /** Folder that paths in the settings are below. */
  readonly root: string
  readonly envPath: string
  readonly caPath: string
  /** CA path as the agent sees it. */
  readonly caSetting: string
  /** File of the authtoken; undefined: the authtoken is among the settings. */
  readonly tokenPath: string | undefined
  /** Copy of that file, if systemd has passed it to the running service. Undefined without a service. */
  readonly passedPath: string | undefined
  /** State of the join itself. */
  readonly recordPath: string
  /** Mode of new folders. The service may read those of /etc. */
  readonly folderMode: number
}

/** The place of the installed service. `root` is `/`, or a folder with such a system. */
export function installedPlace(root: string): JoinPlace {
  const caSetting = '/etc/device-agent/ca.pem'
  return {
    root,
    envPath: join(root, settingsPathOf('device-agent')),
    caPath: join(root, caSetting),
    caSetting,
    tokenPath: join(root, '/etc/credstore/svc-authtoken'),
    passedPath: join(root, PASSED_AUTHTOKEN),
    recordPath: join(root, INSTALLED.joinRecord),
    folderMode: 0o755,
  }
}

/** A settings file of its own, with everything else in the data directory. */
export function folderPlace(envPath: string, dataDir: string): JoinPlace {
  const caPath = join(dataDir, 'gateway-ca.pem')
  const fromHere = relative('.', caPath)
  return {
    root: '/',
    envPath: resolve(envPath),
    caPath,
    caSetting:
      fromHere.startsWith('..') || dirname(resolve(envPath)) === dataDir ? caPath : fromHere,
    tokenPath: undefined,
    passedPath: undefined,
    recordPath: join(dataDir, JOIN_RECORD),
    folderMode: 0o700,
  }
}

/** Settings that decide which gateway a device belongs to. */
const OF_GATEWAY = [
  'SVC_SERVER_ADDR',
  'SVC_CA_CERT',
  'SVC_INGRESS_ADDR',
  'SVC_AUTHTOKEN',
  'SVC_AUTHTOKEN_FILE',
  'SVC_AUTHTOKEN_JOINED',
  'AGENT_DOMAIN',
] as const

/** The gateway that a device belongs to. */
export interface Belonging {
  /** For people. */
  readonly gateway: string
  readonly addresses: readonly string[]
  /** Pins of its CA certificates. */
  readonly pins: readonly string[]
}

/** Returns undefined for a device without server and authtoken. Throws a StartError for wrong settings. */
export function belongingOf(place: JoinPlace): Belonging | undefined {
  const given = parseDotenv(readIfThere(place.envPath) ?? '')
  parseSettings(given)
  const { SVC_SERVER_ADDR: servers = '', SVC_CA_CERT: ca } = given
  const addresses = servers.split(',').flatMap((it) => it.trim() || [])
  const hasToken =
    (place.tokenPath !== undefined && existsSync(place.tokenPath)) ||
    OF_GATEWAY.some((name) => name.startsWith('SVC_AUTHTOKEN') && given[name])
  if (!hasToken && addresses.length === 0) return undefined
  const caPath = ca && (ca.startsWith('/') ? join(place.root, ca) : resolve(ca))
  return {
    gateway: addresses.length > 0 ? addresses.join(', ') : 'the hosted service',
    addresses,
    pins: caPath ? pinsIn(caPath) : [],
  }
}

/**
 * The authtoken that the agent uses, for a proof to its gateway. A setting is used if systemd passes no credentials.
 * It can be older or newer than the file. The passed copy itself is no proof: it can be of an earlier gateway.
 */
export function authtokenIn({ envPath, tokenPath, passedPath }: JoinPlace): Secret | undefined {
  const given = parseDotenv(readIfThere(envPath) ?? '')
  const file = tokenPath ? readIfThere(tokenPath)?.trim() : undefined
  const isPassed = passedPath !== undefined && existsSync(passedPath)
  const [first, second] = isPassed ? [file, given.SVC_AUTHTOKEN] : [given.SVC_AUTHTOKEN, file]
  const token = given.SVC_AUTHTOKEN_JOINED || first || second
  return token ? new Secret(token) : undefined
}

/** Whether a join string is of the gateway that the device belongs to. */
export function isSameGateway({ pins, addresses }: Belonging, joinString: JoinString): boolean {
  if (pins.length > 0) return pins.includes(joinString.pin)
  return joinString.addresses.some((it) => addresses.includes(formatListenAddress(it)))
}

function certificatesIn(path: string): readonly string[] {
  try {
    return readFileSync(path, 'utf8').match(PEM) ?? []
  } catch {
    return []
  }
}

function pinsIn(path: string): string[] {
  return certificatesIn(path).flatMap((pem) => {
    try {
      return [pinOf(pem)]
    } catch {
      return []
    }
  })
}

/** A file with its complete new text. */
export interface FileWrite {
  readonly path: string
  readonly text: string
  readonly mode: number
}

/**
 * Writes of a join, in order. After each of them, the agent has either the old gateway or the new one, with its
 * address, CA and authtoken: the second write is the change. It needs a CA file for both gateways, and an
 * authtoken beside the address. The rest brings each to its place.
 */
export function planJoin(
  place: JoinPlace,
  joined: Joined,
  { isSame }: { readonly isSame: boolean },
): FileWrite[] {
  const { envPath, caPath, caSetting, tokenPath } = place
  const token = joined.authtoken.reveal()
  const ca = `${joined.caPem.trim()}\n`
  const others = certificatesIn(caPath).filter((pem) => pem.trim() !== ca.trim())
  const text = readIfThere(envPath) ?? (tokenPath ? envTemplate('device-agent') : '')
  // A person sets it where systemd passes no credentials. The agent would have no authtoken without it.
  const isSetting = Boolean(parseDotenv(text).SVC_AUTHTOKEN)
  const settings: EnvSettings = {
    ...(isSame ? {} : Object.fromEntries(OF_GATEWAY.map((name) => [name, undefined]))),
    ...(joined.agentDomain !== undefined && { AGENT_DOMAIN: joined.agentDomain }),
    SVC_SERVER_ADDR: serverAddrs(joined),
    SVC_CA_CERT: caSetting,
    SVC_AUTHTOKEN_FILE: undefined,
    SVC_AUTHTOKEN: tokenPath && !isSetting ? undefined : token,
    SVC_AUTHTOKEN_JOINED: tokenPath ? token : undefined,
  }
  const changed = mergeSettings(text, settings)
  const env = (content: string): FileWrite => ({ path: envPath, text: content, mode: 0o600 })
  const caFile = (content: string): FileWrite => ({ path: caPath, text: content, mode: 0o644 })
  return [
    ...(others.length > 0 ? [caFile(`${others.join('\n')}\n${ca}`)] : [caFile(ca)]),
    env(changed),
    ...(tokenPath
      ? [
          { path: tokenPath, text: `${token}\n`, mode: 0o600 },
          env(mergeSettings(changed, { SVC_AUTHTOKEN_JOINED: undefined })),
        ]
      : []),
    ...(others.length > 0 ? [caFile(ca)] : []),
  ]
}

/** The SDK dials no IPv6 address. Throws a StartError if there is no other. */
function serverAddrs({ serverAddrs: all }: Joined): string {
  const dialled = all.filter((it) => !isIPv6Address(it)).slice(0, MAX_SERVERS)
  if (dialled.length > 0) return dialled.join(',')
  throw new StartError(
    `The gateway has only IPv6 addresses (${all.join(', ')}), which the agent cannot dial. ` +
      'Add a DNS name to GATEWAY_PUBLIC_NAMES of the gateway, and create a new invitation.',
  )
}

/** Writes of a leave, in order; undefined text: the file is removed. */
export function planLeave(place: JoinPlace): (Omit<FileWrite, 'text'> & { text?: string })[] {
  const { envPath, caPath, tokenPath, recordPath } = place
  const text = readIfThere(envPath)
  const left =
    text && mergeSettings(text, Object.fromEntries(OF_GATEWAY.map((it) => [it, undefined])))
  return [
    // First: without an authtoken, nothing can be sent to another service than that of the settings.
    ...[tokenPath].flatMap((path) => (path && existsSync(path) ? [{ path, mode: 0o600 }] : [])),
    ...(left === undefined || left === text
      ? []
      : left.trim() === ''
        ? [{ path: envPath, mode: 0o600 }]
        : [{ path: envPath, mode: 0o600, text: left }]),
    ...[caPath, recordPath].filter(existsSync).map((path) => ({ path, mode: 0o600 })),
  ]
}

/** Replaces a file as a whole. Throws a StartError. */
export function writeInto({ folderMode }: JoinPlace, { path, text, mode }: FileWrite): void {
  try {
    makeFolder(dirname(path), folderMode)
    writeFileDurably(path, text, mode)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot write ${path} (${code}).`, { cause: error })
  }
}
