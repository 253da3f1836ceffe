import { existsSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { formatListenAddress } from '../../base/listen-address.ts'
import type { Secret } from '../../base/secret.ts'
import { agentDataDir } from '../../config.ts'
import { JoinError, type Joined, joinGateway } from '../../join/join-client.ts'
import { type JoinString, parseJoinString } from '../../join/join-string.ts'
import type { CommandContext } from '../command-context.ts'
import { askHidden, askYes, canAsk } from '../local/prompt.ts'
import { systemctl } from '../service/service.ts'
import { readVersion } from '../version.ts'
import { despiteHangup } from './despite-hangup.ts'
import {
  authtokenIn,
  type Belonging,
  belongingOf,
  folderPlace,
  installedPlace,
  isSameGateway,
  type JoinPlace,
  planJoin,
  writeInto,
} from './join-place.ts'
import { type JoinedDevice, JoinRecord } from './join-record.ts'
import { waitForLink } from './wait-for-link.ts'

const UNIT = 'device-agent'
const UNIT_FOLDERS = ['/etc/systemd/system', '/usr/lib/systemd/system', '/lib/systemd/system']
/** Other users may read the CA and enter the folders. Secret files have modes of their own. */
const UMASK = 0o022
const MAX_INPUT = 65_536
const MAX_LINES = 8
/** Differences below this are of no interest. */
const MIN_CLOCK_DIFFERENCE_MS = 60_000

/** The options of the command line. */
export interface JoinOptions {
  readonly name?: string
  readonly replace?: boolean
  /** Seconds. */
  readonly wait: number
  readonly dryRun?: boolean
  readonly json?: boolean
}

/** Whether systemd runs here and has the unit of the agent. */
export function isServiceInstalled(root: string): boolean {
  return (
    existsSync(join(root, '/run/systemd/system')) &&
    UNIT_FOLDERS.some((folder) => existsSync(join(root, folder, `${UNIT}.service`)))
  )
}

/** Throws a StartError unless this user may change the service. */
export function requireRoot(task: string): void {
  if (process.geteuid?.() === 0) return
  throw new StartError(`Only root can ${task} the installed service. Run this command with sudo.`)
}

/** The files of this device, and whether the service uses them. */
export function placeOf({ environment, root = '/' }: CommandContext): {
  readonly place: JoinPlace
  readonly isInstalled: boolean
} {
  const isInstalled = isServiceInstalled(root)
  const place = isInstalled ? installedPlace(root) : folderPlace('.env', agentDataDir(environment))
  return { place, isInstalled }
}

/** Runs the command. Sets the exit code to 1 if the device has joined, and has no link in time. */
export async function joinDevice(
  context: CommandContext,
  words: readonly string[],
  options: JoinOptions,
): Promise<void> {
  const { place, isInstalled } = placeOf(context)
  if (isInstalled && !options.dryRun) {
    requireRoot('connect')
    requireStartable()
    process.umask(UMASK)
  }
  const belonging = belongingOf(place)
  const joinString = await readJoinString(context, words)
  const isSame = belonging !== undefined && isSameGateway(belonging, joinString)
  const isProven = belonging?.pins.includes(joinString.pin) ?? false
  if (belonging && !isSame) await requireReplace(context, belonging, options)
  if (options.dryRun) {
    describePlan(context, place, joinString, isInstalled)
    return
  }
  const record = new JoinRecord(place)
  const isRepeated = isSame && record.hasUsed(joinString)
  const device = await despiteHangup(context, async () => {
    const joined = isRepeated
      ? record.joined
      : await enrol(context, place, record, { joinString, isSame, isProven, name: options.name })
    if (isRepeated) context.stderr.write('This device has already used this invitation.\n')
    if (joined && isInstalled) restart(context, joined)
    return joined
  })
  if (!device) return
  await (isInstalled
    ? describeLink(context, device, options)
    : describeStart(context, device, options))
}

/** A masked service could not start, and the invitation would be used up. */
function requireStartable(): void {
  if (!systemctl(['show', UNIT, '--property=LoadState']).includes('=masked')) return
  throw new StartError(
    `The service ${UNIT} is masked, so it cannot start. Run systemctl unmask ${UNIT}, and then this command again. The invitation was not used.`,
  )
}

async function readJoinString(
  context: CommandContext,
  words: readonly string[],
): Promise<JoinString> {
  const given = words.join('')
  const isGiven = given !== '' && given !== '-'
  if (!isGiven && canAsk()) return askJoinString(context)
  const parsed = parseJoinString(isGiven ? given : await readInput())
  if (!('problem' in parsed)) return parsed
  throw new StartError(parsed.problem)
}

/** A string that was broken over lines is asked for until it is complete. */
async function askJoinString(context: CommandContext): Promise<JoinString> {
  let text = ''
  for (let line = 1; ; line += 1) {
    const question = line === 1 ? 'Join string (not shown): ' : 'Rest of the join string: '
    const more = await askHidden(context, question, 'No join string was entered.')
    text += more
    const parsed = parseJoinString(text)
    if (!('problem' in parsed)) return parsed
    if (more.trim() === '' || line === MAX_LINES || !/dajoin\d/.test(text)) {
      throw new StartError(parsed.problem)
    }
  }
}

async function readInput(): Promise<string> {
  let text = ''
  process.stdin.setEncoding('utf8')
  for await (const part of process.stdin) {
    text += part
    if (text.length > MAX_INPUT) break
  }
  if (text.trim() !== '') return text
  throw new StartError(
    'Standard input contains no join string. Create one at the gateway: device-agent gateway invite.',
  )
}

async function requireReplace(
  context: CommandContext,
  { gateway }: Belonging,
  { replace, dryRun }: JoinOptions,
): Promise<void> {
  const fact = `This device belongs to another gateway (${gateway}).`
  if (replace || dryRun) {
    context.stderr.write(`${fact} It leaves that gateway.\n`)
    return
  }
  if (canAsk() && (await askYes(context, `${fact} Leave it and join the new gateway?`))) return
  throw new StartError(`${fact} Nothing was changed. To move the device, add --replace.`)
}

interface Enrolment {
  readonly joinString: JoinString
  readonly isSame: boolean
  /** Whether the CA of the join string is that of this device: only such a gateway gets its authtoken. */
  readonly isProven: boolean
  readonly name: string | undefined
}

/** Asks the gateway for an authtoken, and writes all settings. Throws a StartError. */
async function enrol(
  context: CommandContext,
  place: JoinPlace,
  record: JoinRecord,
  { joinString, isSame, isProven, name }: Enrolment,
): Promise<JoinedDevice> {
  const { stderr, stop } = context
  const before = isSame ? record.joined : undefined
  const wanted = name ?? before?.name ?? hostname()
  const earlierAuthtoken = isProven ? authtokenIn(place) : undefined
  const joined = await ask(place, record, { joinString, hostname: wanted, earlierAuthtoken, stop })
  for (const write of planJoin(place, joined, { isSame })) writeInto(place, write)
  record.finish(joinString, joined)
  if (isSame) stderr.write(againText(before, joined))
  if (name !== undefined && joined.name !== name) {
    stderr.write(
      `The gateway names this device ${joined.name}, not ${name}. It changes a name that is taken or has other characters than a-z, 0-9 and -. An invitation or an earlier join can also fix the name.\n`,
    )
  }
  const clock = clockText(joined.clockAheadMs)
  if (clock !== undefined) stderr.write(`${clock}\n`)
  return { name: joined.name, url: joined.agentUrl ?? null }
}

/** What a device keeps that has joined its gateway again. */
function againText(before: JoinedDevice | undefined, { name, agentUrl }: Joined): string {
  const fact = 'This device already belongs to this gateway. It has a new authtoken'
  if (before === undefined) return `${fact}.\n`
  if (before.name !== name) {
    return `${fact}. Its name was ${before.name} and is now ${name}. The gateway refuses tunnels with the old name. To keep the name, join with an invitation of device-agent gateway invite --name ${before.name}.\n`
  }
  return before.url === (agentUrl ?? null)
    ? `${fact} and keeps its tunnels.\n`
    : `${fact} for the names of this invitation. The gateway refuses tunnels with other names.\n`
}

interface Asking {
  readonly joinString: JoinString
  readonly hostname: string
  readonly earlierAuthtoken: Secret | undefined
  readonly stop: AbortSignal
}

/** Joins with the claim of this device. Its errors say whether the same command may be run again. */
async function ask(place: JoinPlace, record: JoinRecord, asking: Asking): Promise<Joined> {
  const claim = record.claimFor(asking.joinString)
  try {
    return await joinGateway({ ...asking, claim, version: readVersion(), clock: systemClock })
  } catch (error) {
    if (!(error instanceof JoinError)) throw error
    throw new StartError(joinFailure(error, place), { cause: error })
  }
}

/** The reason of a failed join, for people. */
export function joinFailure({ message, isUnanswered }: JoinError, place: JoinPlace): string {
  const again = isUnanswered
    ? `\nThe answer was lost. Join again with the same join string: this device keeps its claim in ${place.recordPath}.`
    : ''
  return `Cannot join.\n${message.replace(/^/gm, '  ')}${again}`
}

const UNITS = [
  [86_400_000, 'day'],
  [3_600_000, 'hour'],
  [60_000, 'minute'],
] as const

/** A sentence about a clock that differs. */
export function clockText(aheadMs: number): string | undefined {
  const size = Math.abs(aheadMs)
  if (size < MIN_CLOCK_DIFFERENCE_MS) return undefined
  const [unitMs, unit] = UNITS.find(([least]) => size >= least) ?? UNITS[2]
  const count = Math.round(size / unitMs)
  const time = `${count} ${unit}${count === 1 ? '' : 's'}`
  return `The clock of this device is ${time} ${aheadMs > 0 ? 'ahead of' : 'behind'} the gateway. Correct it: a wrong clock can prevent connections.`
}

function describePlan(
  { stdout }: CommandContext,
  { envPath, caPath, tokenPath }: JoinPlace,
  { addresses }: JoinString,
  isInstalled: boolean,
): void {
  const lines = [
    `would ask    ${addresses.map(formatListenAddress).join(', ')}`,
    ...[caPath, envPath, ...(tokenPath ? [tokenPath] : [])].map((it) => `would write  ${it}`),
    ...(isInstalled
      ? [['enable'], ['restart']].map(([verb]) => `would run    systemctl ${verb} ${UNIT}`)
      : []),
  ]
  stdout.write(`${lines.join('\n')}\n`)
}

/** Starts the service with its new settings. */
function restart({ stderr }: CommandContext, { name }: JoinedDevice): void {
  stderr.write(`Joined as ${name}. Starting the service.\n`)
  systemctl(['enable', UNIT])
  systemctl(['restart', UNIT])
}

/** Waits for the link of the started service. */
async function describeLink(
  context: CommandContext,
  device: JoinedDevice,
  { wait, json }: JoinOptions,
): Promise<void> {
  const { stdout, stderr } = context
  const link = wait > 0 ? await waitForLink(context, wait * 1_000) : undefined
  if (json) {
    const state = link === undefined ? 'started' : link.isUp ? 'connected' : 'waiting'
    stdout.write(`${JSON.stringify({ ...device, state, problem: link?.problem ?? null })}\n`)
  } else if (link?.isUp) {
    stdout.write(connectedText(device))
    if (link.problem) stderr.write(`${link.problem}\n`)
  } else if (link) {
    const reason = link.isTold ? '.' : `: ${link.problem}`
    stderr.write(
      `This device has joined as ${device.name}, but it is not connected yet${reason}\nThe agent keeps trying. See device-agent status.\n`,
    )
  } else stdout.write(`The service was started. See device-agent status.\n`)
  if (link && !link.isUp) process.exitCode = 1
}

const connectedText = ({ name, url }: JoinedDevice) =>
  url === null
    ? `This device is connected as ${name}.\n`
    : `This device is connected as ${name}: ${url}\n`

/** Without a service, the user starts the agent. */
function describeStart(
  { stdout }: CommandContext,
  device: JoinedDevice,
  { json }: JoinOptions,
): void {
  if (json) {
    stdout.write(`${JSON.stringify({ ...device, state: 'written', problem: null })}\n`)
    return
  }
  const at = device.url === null ? '' : `: ${device.url}`
  stdout.write(
    `This device has joined as ${device.name}${at}\nIts settings are in .env. Start or restart the agent in this directory: device-agent run\n`,
  )
}
