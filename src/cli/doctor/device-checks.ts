import { X509Certificate } from 'node:crypto'
import { accessSync, constants, existsSync, readFileSync, statfsSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { authtokenLack, isAuthtoken } from '../../agent/authtoken-source.ts'
import { hostedProblem } from '../../agent/problem.ts'
import type { Advice } from '../../agent/verdict.ts'
import { fileFlaw, isCertificate } from '../../base/file.ts'
import type { Config } from '../../config.ts'
import { checkPolicy } from '../../policy/check.ts'
import { isPassed } from '../local/unpassed-credential.ts'
import { readDotenv } from '../settings-place.ts'
import { bad, type Finding, good } from './finding.ts'

/** Below it SQLite soon cannot write: the reserve of the agent is 1 MiB. */
const LEAST_FREE_BYTES = 16 * 1024 * 1024
const MIB = 1024 * 1024

/** Whether the running agent has an authtoken. Advice: it does not get that of the file. */
export type AgentToken = 'there' | 'unknown' | Advice

/** Checks of the device without a network. */
export function deviceChecks(config: Config['agent'], ofAgent: AgentToken): Finding[] {
  return [
    folder(config),
    disk(config),
    authtoken(config, ofAgent),
    policy(config),
    ...caCert(config),
  ]
}

function folder({ dataDir }: Config['agent']): Finding {
  const check = 'data folder'
  try {
    const { mode } = statSync(dataDir)
    accessSync(dataDir, constants.R_OK | constants.W_OK | constants.X_OK)
    if ((mode & 0o077) === 0) return good(check, dataDir)
    const remedy = `Restrict access: chmod 700 ${dataDir}.`
    return bad(
      check,
      `other users can access ${dataDir} (mode ${(mode & 0o777).toString(8)})`,
      remedy,
    )
  } catch (error) {
    const code = codeOf(error)
    const remedy =
      isOwnFolder(dataDir) && code === 'EACCES' ? `Run chmod 700 ${dataDir}.` : undefined
    const flaw = FOLDER_FLAWS[code] ?? code
    return bad(check, `${dataDir}: ${flaw}`, remedy ?? FOLDER_REMEDIES[code] ?? START_ONCE)
  }
}

/** Its owner lacks no rights of other users: the mode denies the access. */
function isOwnFolder(path: string): boolean {
  try {
    return statSync(path).uid === process.getuid?.()
  } catch {
    return false
  }
}

const FOLDER_FLAWS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  ENOENT: 'the directory does not exist',
  EROFS: 'the file system is read-only',
}

const START_ONCE = 'Start the agent once to create the directory.'
const FOLDER_REMEDIES: Readonly<Record<string, string>> = {
  EACCES:
    'Run this command with sudo. Only root and the user of the agent have access. If the agent runs as this user, make this user the owner of the directory.',
  EROFS: 'Remount it for writing, and check the kernel log for the cause.',
}

function disk({ dataDir }: Config['agent']): Finding {
  const check = 'disk'
  try {
    const folder = nearestFolder(dataDir)
    const { bavail, bsize, files, ffree } = statfsSync(folder)
    const free = bavail * bsize
    const shown = `${Math.floor(free / MIB)} MiB free in ${folder}`
    if (free < LEAST_FREE_BYTES) return bad(check, shown, FREE_SPACE)
    if (files > 0 && ffree === 0) return bad(check, `no free inodes in ${folder}`, DELETE_FILES)
    return good(check, shown)
  } catch (error) {
    return bad(check, codeOf(error), START_ONCE)
  }
}

const FULL = 'A full disk refuses changes of tunnels and tokens. Online tunnels stay online.'
const FREE_SPACE = `Free disk space there. ${FULL}`
const DELETE_FILES = `Delete unused files there. ${FULL}`

/** A missing folder will be on the disk of its nearest existing parent. */
function nearestFolder(path: string): string {
  let at = resolve(path)
  while (!existsSync(at) && at !== dirname(at)) at = dirname(at)
  return at
}

function authtoken(
  { authtoken: value, authtokenFile, isTokenMounted, serverAddrs, dataDir }: Config['agent'],
  ofAgent: AgentToken,
): Finding {
  const check = 'authtoken'
  if (ofAgent === 'there' && !value && authtokenFile === undefined)
    return good(check, 'the agent has an authtoken')
  const lack = authtokenLack(authtokenFile, undefined)
  const { remedy } = serverAddrs.length === 0 ? hostedProblem(lack) : lack
  if (authtokenFile === undefined) {
    const ofUp = join(dataDir, 'authtoken')
    if (!value && serverAddrs.length === 0 && existsSync(ofUp))
      return good(check, `npm start uses ${ofUp}, of its own gateway`)
    if (!value) return bad(check, 'no authtoken is set', remedy)
    const isInFile = Object.values(readDotenv()).includes(value.reveal())
    return good(check, isInFile ? 'set in .env' : 'set in the environment')
  }
  try {
    if (!isAuthtoken(readFileSync(authtokenFile, 'utf8').trim())) {
      return bad(check, `${authtokenFile} contains no authtoken`, remedy)
    }
    if (typeof ofAgent === 'object') return bad(check, ofAgent.problem, ofAgent.remedy)
    if (ofAgent === 'there' && value && !isPassed(authtokenFile)) {
      return good(check, 'set as SVC_AUTHTOKEN, because systemd passes no credentials')
    }
    const mode = statSync(authtokenFile).mode & 0o777
    if (isTokenMounted || (mode & 0o077) === 0) return good(check, `read from ${authtokenFile}`)
    const flaw = `other users can read ${authtokenFile} (mode ${mode.toString(8)})`
    return bad(
      check,
      flaw,
      `Restrict access: chmod 600 ${authtokenFile}. Replace the authtoken if another user may have read it.`,
    )
  } catch (error) {
    return bad(check, `${authtokenFile}: ${fileFlaw(error)}`, remedy)
  }
}

function policy({ defaultPolicyPath, unknownActions }: Config['agent']): Finding {
  const check = 'default policy'
  try {
    const text = readFileSync(defaultPolicyPath, 'utf8')
    const service = unknownActions === 'refuse' ? 'embedded' : 'hosted'
    const problem = checkPolicy(text, { service }).find((it) => it.severity === 'error')
    if (!problem) return good(check, defaultPolicyPath)
    const { line, column } = problem.position
    const place = `${defaultPolicyPath}:${line}:${column}`
    return bad(
      check,
      `${place}: ${problem.message}`,
      'Fix the policy. Until then the agent uses the last valid version.',
    )
  } catch (error) {
    const remedy = 'Restore the file. Until then the agent uses the last valid version.'
    return bad(check, `${defaultPolicyPath}: ${fileFlaw(error)}`, remedy)
  }
}

function caCert({ caCertPath }: Config['agent']): Finding[] {
  if (caCertPath === undefined) return []
  const check = 'CA certificate'
  try {
    const text = readFileSync(caCertPath, 'utf8')
    if (!isCertificate(text)) {
      return [bad(check, `${caCertPath} contains no certificate`, COPY_CA)]
    }
    const begin = beginOf(text)
    if (begin <= Date.now()) return [good(check, caCertPath)]
    const from = new Date(begin).toISOString().slice(0, 10)
    return [bad(check, `${caCertPath} is not valid before ${from}`, EARLY_CA)]
  } catch (error) {
    return [bad(check, `${caCertPath}: ${fileFlaw(error)}`, COPY_CA)]
  }
}

const COPY_CA =
  'Copy ca.pem of the gateway to this path, readable by the user of the agent, and restart the agent. On the gateway, device-agent gateway show ca prints it.'

const EARLY_CA =
  'Check the clock of this device. If it is right, the gateway made this CA certificate while its own clock was ahead: correct that clock, restart the gateway, and copy its ca.pem to this path.'

/** The latest begin of the certificates of a file. A file of two gateways has two. */
function beginOf(text: string): number {
  const certificates =
    text.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? []
  const begins = certificates.map((pem) => Date.parse(new X509Certificate(pem).validFrom))
  return Math.max(Number.NEGATIVE_INFINITY, ...begins)
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error)
}
