import { basename, dirname, relative } from 'node:path'
import process from 'node:process'
import { StartError } from '../../base/app-error.ts'
import { formatDuration, systemClock } from '../../base/clock.ts'
import { closeSecretFile } from '../../base/file.ts'
import type { CommandContext } from '../command-context.ts'
import { paintFor, plainLine, shownPath } from '../local/terminal-text.ts'
import { mistakesError } from '../mistakes.ts'
import { DEVICE_LIST, DeviceList, type ListedDevice } from '../provision/device-list.ts'
import type { ManagementOptions } from '../provision/management-access.ts'
import { ProgressBar } from '../provision/progress-bar.ts'
import { type DeviceApi, OfflineError } from './device-api.ts'
import type { DeviceReport } from './device-groups.ts'
import { bringInto, type DeviceOutcome, type DeviceWork } from './device-outcome.ts'
import { checkFleet, knownTags, noDeviceHas, whyUnmanaged } from './fleet-checks.ts'
import { type Fleet, readFleet, wantedTunnels } from './fleet-file.ts'
import { type FleetRunOptions, runFleet } from './fleet-run.ts'
import {
  exitCodeOf,
  outcomeText,
  reportsJson,
  reportsText,
  statusTable,
  summaryText,
} from './fleet-text.ts'
import { readLastSeen } from './last-seen.ts'

export interface FleetOptions extends ManagementOptions {
  readonly device?: readonly string[]
  readonly tag?: readonly string[]
  readonly parallel: number
  readonly wait?: number
  readonly json?: boolean
  readonly all?: boolean
}

/** `fleet plan` and `fleet apply`. Sets the exit code. */
export async function bringFleet(
  context: CommandContext,
  path: string,
  options: FleetOptions & { readonly isApply: boolean },
): Promise<void> {
  const { isApply } = options
  const { fleet, devices } = open(context, path, options)
  const attempted: DeviceWork['attempted'] = new Map()
  const outcomes = await run(context, fleet, devices, options, (device, api) => {
    const wanted = () => wantedTunnels(fleet, device)
    return bringInto({ ...workOf(context, device, api), wanted, isApply, attempted })
  })
  await tell(context, { fleet, devices, outcomes, options, isApply, show: reportsText })
}

/** `fleet status`: the state of each device, and whether its tunnels match the file. */
export async function showFleet(
  context: CommandContext,
  path: string,
  options: FleetOptions,
): Promise<void> {
  const { fleet, devices } = open(context, path, options)
  const verdicts = new Map<string, string>()
  const outcomes = await run(context, fleet, devices, options, async (device, api) => {
    const wanted = () => wantedTunnels(fleet, device)
    const outcome = await bringInto({ ...workOf(context, device, api), wanted, isApply: false })
    if (['offline', 'failed', 'stopped'].includes(outcome.state)) return outcome
    try {
      verdicts.set(device.name, (await api.status()).verdict)
      return outcome
    } catch (error) {
      return failureOf(context, device.name, error)
    }
  })
  const isApply = false
  await tell(context, { fleet, devices, outcomes, options, isApply, verdicts, show: statusTable })
}

interface Told {
  readonly fleet: Fleet
  readonly devices: readonly ListedDevice[]
  readonly outcomes: readonly DeviceOutcome[]
  readonly options: FleetOptions
  readonly isApply: boolean
  readonly verdicts?: ReadonlyMap<string, string>
  readonly show: typeof reportsText
}

/** Prints the results, and sets the exit code. */
async function tell(context: CommandContext, told: Told): Promise<void> {
  const { outcomes, options, isApply, show } = told
  const { stdout, environment } = context
  const isOffline = outcomes.some(({ state }) => state === 'offline')
  const seen = isOffline ? await readLastSeen(context, options) : undefined
  const reports = reportsOf(told, seen)
  const exitCode = exitCodeOf(outcomes)
  if (options.json) stdout.write(`${reportsJson(reports, exitCode)}\n`)
  else {
    const paint = paintFor(stdout, environment)
    stdout.write(show(reports, { paint, isAll: options.all === true, now: systemClock.now() }))
    if (isOffline && !seen) stdout.write(NO_KEY)
    stdout.write(summaryText(outcomes, isApply))
  }
  process.exitCode = exitCode
  sayStopped(context, outcomes)
}

const NO_KEY =
  'To see when offline devices were last connected, add --api-url and --key-file of the gateway.\n'

function reportsOf(
  { fleet, devices, outcomes, verdicts }: Pick<Told, 'fleet' | 'devices' | 'outcomes' | 'verdicts'>,
  seen: Awaited<ReturnType<typeof readLastSeen>>,
): DeviceReport[] {
  const listed = new Map(devices.map((device) => [device.name, device]))
  return outcomes.map((outcome) => {
    const { name, state } = outcome
    const { tags = [], agentDomain = '' } = listed.get(name) ?? {}
    const problem = state === 'unmanaged' ? whyUnmanaged(fleet, { name, tags }) : outcome.problem
    return {
      ...{ ...outcome, problem, tags, agentDomain },
      verdict: verdicts?.get(name) ?? null,
      seen: state === 'offline' ? seen?.get(name) : undefined,
    }
  })
}

/**
 * `fleet retire`: takes its tunnels from each device, ends the token that this is done with, and
 * strikes it from the list. One where that is not possible stays, unless `isForced`.
 */
export async function retireFromFleet(
  context: CommandContext,
  path: string,
  names: readonly string[],
  options: FleetOptions & { readonly isForced: boolean },
): Promise<void> {
  const { fleet, devices, list } = open(context, path, { ...options, device: names, isAgain: true })
  const attempted: DeviceWork['attempted'] = new Map()
  const outcomes = await run(context, fleet, devices, options, async (device, api) => {
    const work = { ...workOf(context, device, api), isApply: true, attempted }
    const outcome = await bringInto({ ...work, wanted: () => [] })
    const ended = isOut(outcome) ? await endToken(context, api, outcome) : outcome
    const isEnded = isOut(outcome) && ended === outcome
    if (isEnded || (options.isForced && ended.state !== 'stopped')) {
      await list.retire(device.name)
    }
    return ended
  })
  const paint = paintFor(context.stdout, context.environment)
  const isLeft = outcomes.some(({ name }) => list.get(name))
  context.stdout.write(
    options.json
      ? `${reportsJson(reportsOf({ fleet, devices, outcomes }, undefined), isLeft ? 1 : 0)}\n`
      : outcomes.map((it) => outcomeText(it, paint, isOut(it)) + forcedText(it, list)).join(''),
  )
  if (!options.json && !isLeft) {
    context.stdout.write(
      `To revoke the authtokens and delete the files of the devices, run:\n${retireCommands(fleet, names)}`,
    )
  }
  if (!options.json && isLeft && !options.isForced && !context.stop.aborted) {
    const left = names.filter((name) => list.get(name)).map(shellWord)
    context.stdout.write(
      `To remove a device without its answer, for example if it is lost, run:\n  device-agent fleet retire ${shellWord(path)} ${left.join(' ')} --force\n`,
    )
  }
  process.exitCode = isLeft ? 1 : 0
  sayStopped(context, outcomes)
}

/** A device that was removed without its answer still shows why it gave none. */
function forcedText(outcome: DeviceOutcome, list: DeviceList): string {
  return isOut(outcome) || list.get(outcome.name) ? '' : '  removed from the list\n'
}

/** `provision` finds the files of a device in the folder of the list. */
function retireCommands({ devicesPath }: Fleet, names: readonly string[]): string {
  const folder = relative('.', dirname(devicesPath))
  const options = [
    ...(folder === '' ? [] : ['--output', shownPath(dirname(devicesPath))]),
    ...(basename(devicesPath) === DEVICE_LIST ? [] : ['--devices', shownPath(devicesPath)]),
  ]
  return names
    .map((name) => ['device-agent provision --retire --name', name, ...options])
    .map(([command, ...words]) => `  ${[command, ...words.map(shellWord)].join(' ')}\n`)
    .join('')
}

/** A word as a POSIX shell reads it. */
function shellWord(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/** The device has no tunnels left. */
const isOut = ({ state }: DeviceOutcome) => state === 'same' || state === 'applied'

async function endToken(
  context: CommandContext,
  api: DeviceApi,
  outcome: DeviceOutcome,
): Promise<DeviceOutcome> {
  try {
    await api.revokeToken()
    return outcome
  } catch (error) {
    return failureOf(context, outcome.name, error)
  }
}

function open(
  { stderr }: CommandContext,
  path: string,
  {
    device: names,
    tag: tags = [],
    isAgain = false,
  }: Pick<FleetOptions, 'device' | 'tag'> & {
    /** Some of the names may be off the list by now. */
    readonly isAgain?: boolean
  },
): { fleet: Fleet; devices: ListedDevice[]; list: DeviceList } {
  const fleet = readFleet(path)
  const { devicesPath } = fleet
  const shownList = shownPath(devicesPath)
  if (closeSecretFile(devicesPath)) {
    stderr.write(`warning: other users could read the tokens in ${shownList}. Rotate the tokens.\n`)
  }
  const list = DeviceList.read(devicesPath)
  if (list.incomplete !== undefined) {
    const sentence = `${list.incomplete} Use a complete copy of the list, or run device-agent provision for the device.`
    // A retired device leaves the list whatever the last line says.
    if (!isAgain) throw new StartError(sentence)
    stderr.write(`warning: ${plainLine(sentence)}\n`)
  }
  if (list.all.length === 0) {
    if (fleet.mistakes.length > 0) throw mistakesError(path, fleet.mistakes)
    throw new StartError(
      `${shownList} contains no device. Create the list with device-agent provision, or set devices to another path.`,
    )
  }
  const unknown = names?.filter((name) => !list.get(name)) ?? []
  for (const name of unknown) {
    const sentence = `${shownList} contains no device named ${name}.`
    if (!isAgain || unknown.length === names?.length) throw new StartError(sentence)
    stderr.write(`warning: ${sentence}\n`)
  }
  // A device may be retired whatever the rest of the file says.
  const { mistakes, warnings } = isAgain
    ? { mistakes: fleet.mistakes, warnings: [] }
    : checkFleet(fleet, list.all)
  for (const warning of warnings) stderr.write(`warning: ${plainLine(warning)}\n`)
  if (mistakes.length > 0) throw mistakesError(path, mistakes)
  const known = knownTags(list.all)
  const unknownTag = tags.find((tag) => !known.includes(tag))
  if (unknownTag !== undefined) throw new StartError(noDeviceHas(unknownTag, known))
  const devices = list.all.filter(
    (device) =>
      (names === undefined || names.includes(device.name)) &&
      tags.every((it) => device.tags.includes(it)),
  )
  if (devices.length === 0) {
    const among = names === undefined ? 'No device has' : 'None of these devices has'
    throw new StartError(`${among} all of the tags ${tags.join(', ')}.`)
  }
  return { fleet, devices, list }
}

async function run(
  { stderr, stop }: CommandContext,
  fleet: Fleet,
  devices: readonly ListedDevice[],
  { parallel, wait = 0 }: FleetOptions,
  work: Parameters<typeof runFleet>[1],
): Promise<DeviceOutcome[]> {
  const bar = new ProgressBar({ stream: stderr, total: devices.length })
  const options: FleetRunOptions = {
    fleet,
    devices,
    parallel,
    waitMs: wait,
    onDone: ({ name, state }) => {
      // It comes again when it is back.
      if (state !== 'offline' || wait === 0) bar.advance(name)
    },
    onWait: (count) => {
      const [subject, them] = count === 1 ? ['1 device is', 'it'] : [`${count} devices are`, 'them']
      bar.clear()
      stderr.write(`${subject} offline: waiting up to ${formatDuration(wait)} for ${them}\n`)
    },
    clock: systemClock,
    stop,
  }
  return runFleet(options, work).finally(() => bar.clear())
}

function workOf({ stop }: CommandContext, { name }: ListedDevice, api: DeviceApi) {
  return { name, api, clock: systemClock, stop, attempted: new Map() }
}

/** Printed after the results, so that a stopped run shows its progress. */
function sayStopped({ stderr, stop }: CommandContext, outcomes: readonly DeviceOutcome[]): void {
  if (!stop.aborted || !outcomes.some(({ state }) => state === 'stopped' || state === 'offline'))
    return
  stderr.write('Stopped before the end. Run the same command again to continue.\n')
}

function failureOf({ stop }: CommandContext, name: string, error: unknown): DeviceOutcome {
  if (stop.aborted) return { name, state: 'stopped', tunnels: [], problem: undefined }
  const isOffline = error instanceof OfflineError
  if (!isOffline && !(error instanceof StartError)) throw error
  return { name, state: isOffline ? 'offline' : 'failed', tunnels: [], problem: error.message }
}
