import { chmodSync, existsSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parse as parseDotenv } from 'dotenv'
import { shippedPolicyPath } from '../../agent/policies/shipped-policy.ts'
import { StartError } from '../../base/app-error.ts'
import { makeFolder, packageRoot, writeFileDurably } from '../../base/file.ts'
import { formatListenAddress, SOCKET_SETTINGS } from '../../base/listen-address.ts'
import type { Secret } from '../../base/secret.ts'
import { parseSettings } from '../../settings/settings.ts'
import { type EnvSettings, mergeSettings } from '../provision/env-file.ts'
import { envTemplate, type ServiceName } from './env-template.ts'

export interface ServiceLayout {
  /** `/`, or the root of an image that is being built. */
  readonly root: string
  readonly name: ServiceName
  /** The Node program and the built main.js that the unit starts. */
  readonly node: string
  readonly main: string
  /** The authtoken to install; undefined: no change. */
  readonly authtoken: Secret | undefined
  /** Added to the settings of the service. Other settings stay. */
  readonly settings?: EnvSettings | undefined
}

export type ChangeKind = 'create' | 'update' | 'keep' | 'remove'

/** One file and its change. */
export interface FileChange {
  readonly kind: ChangeKind
  /** As it will be on the target, without the root. */
  readonly path: string
  readonly mode: number
  readonly content: string | undefined
}

const SOCKET_PATH = '/etc/systemd/system/device-gateway.socket'
const ENV_FILES: Record<ServiceName, string> = {
  'device-agent': '/etc/device-agent/agent.env',
  'device-gateway': '/etc/device-gateway/gateway.env',
}

/** Planned changes of an install. A changed settings file is never replaced. */
export function planInstall(layout: ServiceLayout): FileChange[] {
  const { name, authtoken } = layout
  const unit = readFileSync(join(packageRoot(), 'systemd', `${name}.service`), 'utf8')
  const started = unit.replace(/^ExecStart=.*?node (.*?)\S+main\.js /m, (_, flags) => {
    return `ExecStart=${layout.node} ${flags}${layout.main} `
  })
  const changes = [unitChange(layout, `${name}.service`, started)]
  if (authtoken) {
    // Before the settings, which may hold the only copy of it.
    const content = `${authtoken.reveal()}\n`
    changes.push(change(layout, '/etc/credstore/svc-authtoken', 0o600, content))
  }
  changes.push(settingsFile(layout))
  if (name === 'device-gateway') {
    changes.push(unitChange(layout, 'device-gateway.socket', socketUnit(layout)))
  }
  if (name === 'device-agent') {
    const policy = readFileSync(shippedPolicyPath(), 'utf8')
    changes.push(ownersFile(layout, '/etc/device-agent/default-policy.json', 0o644, policy))
  }
  return changes
}

/** An uninstall takes the unit away and leaves settings, token and data to their owner. */
export function planUninstall({ root, name }: Pick<ServiceLayout, 'root' | 'name'>): FileChange[] {
  const paths = name === 'device-gateway' ? [unitPath(name), SOCKET_PATH] : [unitPath(name)]
  return paths
    .filter((path) => existsSync(join(root, path)))
    .map((path) => ({ kind: 'remove', path, mode: 0, content: undefined }))
}

/**
 * Carries the plan out; each file is replaced as a whole. Throws a StartError that names the file
 * which could not be.
 */
export function applyChanges(root: string, changes: readonly FileChange[]): void {
  for (const change of changes) {
    try {
      apply(root, change)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      const flaw = `Cannot write ${change.path} (${code}). Run this command with sudo.`
      throw new StartError(flaw, { cause: error })
    }
  }
}

function apply(root: string, { kind, path, mode, content }: FileChange): void {
  const target = join(root, path)
  if (kind === 'remove') rmSync(target, { force: true })
  if (kind === 'keep' || content === undefined) return
  makeFolder(dirname(target), 0o755)
  writeFileDurably(target, content, mode)
  // Independent of the umask of the installing user.
  chmodSync(target, mode)
}

/** A Debian package's own unit that says the same is enough: a second one would hide its updates. */
function unitChange(layout: ServiceLayout, unit: string, content: string): FileChange {
  const own = `/etc/systemd/system/${unit}`
  const packaged = `/usr/lib/systemd/system/${unit}`
  const isPackaged = readIfAllowed(join(layout.root, packaged)) === content
  if (!isPackaged || existsSync(join(layout.root, own))) return change(layout, own, 0o644, content)
  return { kind: 'keep', path: packaged, mode: 0o644, content }
}

/** Path of a service's settings, without the root folder. */
export const settingsPathOf = (name: ServiceName) => ENV_FILES[name]

const unitPath = (name: ServiceName) => `/etc/systemd/system/${name}.service`

/** Listens where the gateway's settings say, with those that are about to be written. */
function socketUnit({ root, name, settings: added = {} }: ServiceLayout): string {
  const unit = readFileSync(join(packageRoot(), 'systemd/device-gateway.socket'), 'utf8')
  const given = parseDotenv(readIfAllowed(join(root, ENV_FILES[name])) ?? '')
  const settings = parseSettings({ ...given, ...added })
  const lines = SOCKET_SETTINGS.map((setting) => settings[setting])
    .filter(({ port }) => port !== 0)
    .map(formatListenAddress)
  const [first = '', ...rest] = unit.split(/^ListenStream=.*\n/m)
  return `${first}${lines.map((line) => `ListenStream=${line}\n`).join('')}${rest.join('')}`
}

function change({ root }: ServiceLayout, path: string, mode: number, content: string): FileChange {
  const target = join(root, path)
  if (!existsSync(target)) return { kind: 'create', path, mode, content }
  const isSame = readIfAllowed(target) === content && (statSync(target).mode & 0o777) === mode
  return { kind: isSame ? 'keep' : 'update', path, mode, content }
}

/** Any user may start a dry run. A file that only root can read counts as different. */
function readIfAllowed(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

/**
 * The owner's settings, changed only by the handover file, and by an authtoken. It goes to the credentials, and that
 * of an interrupted join would win over it. SVC_AUTHTOKEN is used where systemd passes no credentials.
 */
function settingsFile(layout: ServiceLayout): FileChange {
  const { root, name, settings, authtoken } = layout
  const path = ENV_FILES[name]
  const target = join(root, path)
  const { SVC_AUTHTOKEN_JOINED: joined, SVC_AUTHTOKEN: set } = parseDotenv(
    readIfAllowed(target) ?? '',
  )
  if (!settings && !(authtoken && (joined || set)))
    return ownersFile(layout, path, 0o600, envTemplate(name))
  const given = {
    ...settings,
    ...(authtoken && { SVC_AUTHTOKEN_JOINED: undefined }),
    ...(authtoken && settings && { SVC_AUTHTOKEN: undefined }),
    ...(authtoken && !settings && set && { SVC_AUTHTOKEN: authtoken.reveal() }),
  }
  const text = existsSync(target) ? readFileSync(target, 'utf8') : envTemplate(name)
  return change(layout, path, 0o600, mergeSettings(text, given))
}

function ownersFile(
  { root }: ServiceLayout,
  path: string,
  mode: number,
  content: string,
): FileChange {
  return { kind: existsSync(join(root, path)) ? 'keep' : 'create', path, mode, content }
}
