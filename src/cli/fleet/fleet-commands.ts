import { resolve } from 'node:path'
import process from 'node:process'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { closeSecretFile } from '../../base/file.ts'
import type { CommandContext } from '../command-context.ts'
import { paintFor } from '../local/terminal-text.ts'
import { DeviceList, type ListedDevice } from '../provision/device-list.ts'
import { ProgressBar } from '../provision/progress-bar.ts'
import { type DeviceApi, OfflineError } from './device-api.ts'
import { bringInto, type DeviceOutcome, type DeviceWork } from './device-outcome.ts'
import { type Fleet, readFleet } from './fleet-file.ts'
import { type FleetRunOptions, runFleet } from './fleet-run.ts'
import { exitCodeOf, outcomesJson, outcomeText, statusTable, summaryText } from './fleet-text.ts'
import { wantedTunnels } from './wanted-tunnels.ts'

export interface FleetOptions {
  readonly device?: readonly string[]
  readonly tag?: readonly string[]
  readonly parallel: number
  readonly wait?: number
  readonly json?: boolean
}

/** `fleet plan` and `fleet apply`. Sets the exit code. */
export async function bringFleet(
  context: CommandContext,
  path: string,
  options: FleetOptions & { readonly isApply: boolean },
): Promise<void> {
  const { isApply, json } = options
  const { fleet, devices } = open(context, path, options)
  const attempted: DeviceWork['attempted'] = new Map()
  const outcomes = await run(context, fleet, devices, options, (device, api) => {
    const wanted = () => wantedTunnels(fleet, device)
    return bringInto({ ...workOf(context, device, api), wanted, isApply, attempted })
  })
  const paint = paintFor(context.stdout, context.environment)
  const shown = outcomes.filter(({ state }) => state !== 'same' && state !== 'unmanaged')
  context.stdout.write(
    json
      ? `${outcomesJson(outcomes)}\n`
      : `${shown.map((it) => outcomeText(it, paint)).join('')}${summaryText(outcomes, isApply)}`,
  )
  process.exitCode = exitCodeOf(outcomes)
}

/** `fleet status`: how each device is, and whether it has what it shall have. */
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
    if (outcome.state === 'offline' || outcome.state === 'failed') return outcome
    try {
      verdicts.set(device.name, (await api.status()).verdict)
      return outcome
    } catch (error) {
      return failureOf(device.name, error)
    }
  })
  const rows = outcomes.map(({ name, state, problem }) => ({
    name,
    tags: devices.find((it) => it.name === name)?.tags ?? [],
    state,
    problem: problem ?? null,
    verdict: verdicts.get(name) ?? null,
  }))
  const paint = paintFor(context.stdout, context.environment)
  context.stdout.write(
    options.json
      ? `${JSON.stringify({ devices: rows })}\n`
      : `${statusTable(rows, paint)}${summaryText(outcomes, false)}`,
  )
  process.exitCode = exitCodeOf(outcomes)
}

/**
 * `fleet retire`: takes its tunnels from each device, ends the token that this is done with, and
 * strikes it from the list. One that is offline stays, unless `isForced`.
 */
export async function retireFromFleet(
  context: CommandContext,
  path: string,
  names: readonly string[],
  options: FleetOptions & { readonly isForced: boolean },
): Promise<void> {
  const { fleet, devices, list } = open(context, path, { ...options, device: names })
  const attempted: DeviceWork['attempted'] = new Map()
  const outcomes = await run(context, fleet, devices, options, async (device, api) => {
    const work = { ...workOf(context, device, api), isApply: true, attempted }
    const outcome = await bringInto({ ...work, wanted: () => [] })
    const isOut = outcome.state === 'same' || outcome.state === 'applied'
    try {
      if (isOut) await api.revokeToken()
      if (isOut || (options.isForced && outcome.state === 'offline')) list.retire(device.name)
      return outcome
    } catch (error) {
      return failureOf(device.name, error)
    }
  })
  const paint = paintFor(context.stdout, context.environment)
  context.stdout.write(
    options.json
      ? `${outcomesJson(outcomes)}\n`
      : outcomes.map((it) => outcomeText(it, paint)).join(''),
  )
  const isLeft = outcomes.some(({ name }) => list.get(name))
  if (!options.json && !isLeft) {
    context.stdout.write(
      'Their authtokens go with: device-agent provision --retire --name <device>\n',
    )
  }
  process.exitCode = isLeft ? 1 : 0
}

function open(
  { stderr }: CommandContext,
  path: string,
  { device: names, tag: tags = [] }: Pick<FleetOptions, 'device' | 'tag'>,
): { fleet: Fleet; devices: ListedDevice[]; list: DeviceList } {
  const fleet = readFleet(resolve(path))
  const { devicesPath } = fleet
  if (closeSecretFile(devicesPath)) {
    stderr.write(`warning: others could read the tokens in ${devicesPath}: rotate them\n`)
  }
  const list = DeviceList.read(devicesPath)
  if (list.all.length === 0) {
    throw new StartError(
      `${devicesPath} lists no device: provision writes it, or name it in devices.`,
    )
  }
  const unknown = names?.find((name) => !list.get(name))
  if (unknown !== undefined)
    throw new StartError(`${devicesPath} lists no device named ${unknown}.`)
  const nameless = Object.keys(fleet.deviceVars).find((name) => !list.get(name))
  if (nameless !== undefined) {
    throw new StartError(`/device_vars/${nameless}: ${devicesPath} lists no such device.`)
  }
  const devices = list.all.filter(
    (device) =>
      (names === undefined || names.includes(device.name)) &&
      tags.every((it) => device.tags.includes(it)),
  )
  if (devices.length === 0) {
    const among = names === undefined ? 'no device' : 'none of these devices'
    throw new StartError(`${devicesPath} lists ${among} with the tag ${tags.join(' ')}.`)
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
    clock: systemClock,
    stop,
  }
  return runFleet(options, work).finally(() => bar.clear())
}

function workOf({ stop }: CommandContext, { name }: ListedDevice, api: DeviceApi) {
  return { name, api, clock: systemClock, stop, attempted: new Map() }
}

function failureOf(name: string, error: unknown): DeviceOutcome {
  const isOffline = error instanceof OfflineError
  if (!isOffline && !(error instanceof StartError)) throw error
  return { name, state: isOffline ? 'offline' : 'failed', tunnels: [], problem: error.message }
}
