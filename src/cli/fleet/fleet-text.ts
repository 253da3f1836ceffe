import { ageText, type Colour, type Paint, plainLine, tableText } from '../local/terminal-text.ts'
import type { TunnelStep as Step } from './device-api.ts'
import { type DeviceGroup, type DeviceReport, groupsOf } from './device-groups.ts'
import type { DeviceOutcome, DeviceState } from './device-outcome.ts'

const SIGNS: Readonly<Record<Step['action'], readonly [sign: string, colour: Colour]>> = {
  create: ['+', 'green'],
  replace: ['~', 'yellow'],
  delete: ['-', 'red'],
  keep: [' ', 'dim'],
}
const STATES: Readonly<Record<DeviceState, readonly [words: string, colour: Colour]>> = {
  unmanaged: ['in no set', 'yellow'],
  same: ['up to date', 'green'],
  differs: ['differs', 'yellow'],
  applied: ['changed', 'green'],
  pending: ['stored, not all online', 'yellow'],
  offline: ['offline', 'yellow'],
  failed: ['failed', 'red'],
  stopped: ['stopped', 'yellow'],
}
/** The same of a number of devices. */
const COUNTED: Readonly<Record<DeviceState, string>> = {
  unmanaged: 'in no set',
  same: 'up to date',
  differs: 'to change',
  applied: 'changed',
  pending: 'stored, not all online',
  offline: 'offline',
  failed: 'failed',
  stopped: 'stopped',
}

const MAX_SHOWN = 300
const MAX_NAMES = 5
/** Groups of one state, and tunnels of one group. */
const MAX_GROUPS = 10
const MAX_TUNNELS = 20

/** `cam1, cam2, cam3 and 38 more` */
export function namesText(names: readonly string[], most = MAX_NAMES): string {
  const shown = names.slice(0, most).join(', ')
  const rest = names.length - most
  return plainLine(rest > 0 ? `${shown} and ${rest} more` : shown)
}

export interface ShownOptions {
  readonly paint: Paint
  /** Each device by itself, and all of them. */
  readonly isAll: boolean
  readonly now: number
}

/** Devices with something to tell. Devices with the same change or the same fault share their lines. */
export function reportsText(reports: readonly DeviceReport[], options: ShownOptions): string {
  const { isAll } = options
  const told = reports.filter(({ state }) => state !== 'same')
  return bounded(groupsOf(told, isAll), isAll)
    .map((it) => ('more' in it ? `${it.more}\n` : groupText(it, options)))
    .join('')
}

/** At most so many groups of each state, then a line with the number of the other devices. */
function bounded(
  groups: readonly DeviceGroup[],
  isAll: boolean,
): (DeviceGroup | { readonly more: string })[] {
  return [...new Set(groups.map(({ state }) => state))].flatMap((state) => {
    const some = groups.filter((group) => group.state === state)
    const most = isAll ? some.length : MAX_GROUPS
    const rest = some.slice(most).flatMap(({ members }) => members).length
    const more = `… and ${rest} more ${COUNTED[state]}. Show all with --all.`
    return [...some.slice(0, most), ...(rest > 0 ? [{ more }] : [])]
  })
}

function groupText(group: DeviceGroup, { paint, isAll, now }: ShownOptions): string {
  const { members, state, shown } = group
  const why = [whyText(group), seenText(members, now)].filter((part) => part !== '').join(' ')
  const end = why === '' ? '' : `: ${why}`
  const names = namesText(members.map(({ name }) => name))
  const [words, colour] = STATES[state]
  const title =
    members.length === 1
      ? `${paint('bold', names)}  ${paint(colour, words)}`
      : `${paint('bold', `${members.length} devices`)}  ${paint(colour, COUNTED[state])}: ${names}`
  const lines = members.length === 1 ? [`${title}${end}`] : [title, ...(why ? [`  ${why}`] : [])]
  const most = isAll ? shown.tunnels.length : MAX_TUNNELS
  for (const tunnel of shown.tunnels.slice(0, most)) lines.push(tunnelText(tunnel, paint))
  const rest = shown.tunnels.length - most
  if (rest > 0) lines.push(`  … and ${rest} more tunnels. Show all with --all.`)
  return `${lines.join('\n')}\n`
}

/** The fault in one line, with the reason of the gateway. */
function whyText({ members, shown: { problem } }: DeviceGroup): string {
  const reason = members[0]?.seen?.reason ?? ''
  const parts = [problem ?? '', reason].filter((part) => part !== '')
  return plainLine(parts.join(problem?.endsWith('.') ? ' ' : '. ')).slice(0, 1_000)
}

/** `(last seen 3 h ago)`; of several devices the first and the last. */
function seenText(members: readonly DeviceReport[], now: number): string {
  const times = members.flatMap(({ seen }) => (seen?.at ? [seen.at] : [])).sort()
  const [oldest, newest] = [times[0], times.at(-1)]
  if (oldest === undefined || newest === undefined) return ''
  const [longest, shortest] = [ageText(oldest, now), ageText(newest, now)]
  const range = longest === shortest ? longest : `${shortest} to ${longest}`
  return `(last seen ${plainLine(range)} ago)`
}

/** One device that `retire` has processed. `isRetired`: the change removed the device. */
export function outcomeText(
  { name, state, tunnels, problem }: DeviceOutcome,
  paint: Paint,
  isRetired = false,
): string {
  const [words, colour] = isRetired ? (['retired', 'green'] as const) : STATES[state]
  const why = problem === undefined ? '' : `: ${plainLine(problem)}`
  const title = `${paint('bold', plainLine(name))}  ${paint(colour, words)}${why}`
  return `${[title, ...tunnels.map((tunnel) => tunnelText(tunnel, paint))].join('\n')}\n`
}

function tunnelText(tunnel: Step, paint: Paint): string {
  const [sign, colour] = SIGNS[tunnel.action]
  const name = plainLine(tunnel.domain || 'name pending')
  return `  ${paint(colour, sign)} ${name}${changesText(tunnel)}`
}

/** `  forwards_to localhost:1 → localhost:2, policy changed` */
function changesText({ action, changes }: Step): string {
  if (action === 'delete') return ''
  const parts = Object.entries(changes).map(([field, change]) => {
    if (!Array.isArray(change)) return `${field} ${action === 'create' ? 'set' : 'changed'}`
    const [before, after] = change.slice(0, 2).map(valueText)
    return action === 'create' ? `${field} ${after}` : `${field} ${before} → ${after}`
  })
  return parts.length > 0 ? `  ${plainLine(parts.join(', '))}` : ''
}

/** A device can return any text of any length. */
function valueText(value: unknown): string {
  if (value === null || value === undefined) return 'none'
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value)
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text
}

/** A line for each group of devices: whether they match the file, and their verdict. */
export function statusTable(
  reports: readonly DeviceReport[],
  { paint, isAll, now }: ShownOptions,
): string {
  const row = (cells: readonly string[]) => cells.map((text) => ({ text, colour: 'dim' as const }))
  const heading = row(
    isAll ? ['DEVICE', 'TAGS', 'TUNNELS', 'STATUS'] : ['DEVICES', 'TUNNELS', 'STATUS'],
  )
  const cells = bounded(groupsOf(reports, isAll), isAll).map((group) => {
    if ('more' in group) return [{ text: group.more }]
    const { members, state, shown } = group
    const [words, colour] = STATES[state]
    const why = [whyText(group) || (shown.verdict ?? ''), seenText(members, now)]
    const names = namesText(
      members.map(({ name }) => name),
      MAX_ROW_NAMES,
    )
    return [
      { text: members.length === 1 ? names : `${members.length}: ${names}` },
      ...(isAll ? [{ text: members[0]?.tags.join(' ') ?? '' }] : []),
      { text: words, colour },
      { text: why.filter((part) => part !== '').join(' ') },
    ]
  })
  return tableText([heading, ...cells], paint)
}

const MAX_ROW_NAMES = 3

/** Terraform's last line, and the number of devices in each state. */
export function summaryText(outcomes: readonly DeviceOutcome[], isApply: boolean): string {
  const { add, change, remove, changed_devices: changed, states } = summaryOf(outcomes)
  const on = `on ${changed} of ${devicesText(outcomes.length)}`
  const isLeft = ![0, 4].includes(exitCodeOf(outcomes))
  const told = isApply
    ? `Apply ${isLeft ? 'incomplete' : 'complete'}: ${add} added, ${change} changed, ${remove} removed ${on}.`
    : `Plan: ${add} to add, ${change} to change, ${remove} to remove ${on}.`
  const parts = (Object.keys(STATES) as DeviceState[]).flatMap((state) =>
    states[state] > 0 ? [`${states[state]} ${COUNTED[state]}`] : [],
  )
  return `${told}\nDevices: ${parts.join(', ') || 'none'}.\n`
}

const devicesText = (count: number) => (count === 1 ? '1 device' : `${count} devices`)

function summaryOf(outcomes: readonly DeviceOutcome[]) {
  const steps = outcomes.flatMap(({ tunnels }) => tunnels)
  const of = (action: Step['action']) => steps.filter((step) => step.action === action).length
  const count = (state: DeviceState) => outcomes.filter((it) => it.state === state).length
  const states = Object.fromEntries(
    (Object.keys(STATES) as DeviceState[]).map((state) => [state, count(state)]),
  ) as Record<DeviceState, number>
  return {
    ...{ add: of('create'), change: of('replace'), remove: of('delete') },
    changed_devices: outcomes.filter(({ tunnels }) => tunnels.length > 0).length,
    states,
  }
}

/**
 * 0: every device matches the file. 1: a device failed, or the command was stopped. 2: wrong usage. 3:
 * something is left to do. 4: all other devices match, and some devices are in no set.
 */
export function exitCodeOf(outcomes: readonly DeviceOutcome[]): 0 | 1 | 3 | 4 {
  const states = new Set(outcomes.map(({ state }) => state))
  if (states.has('failed') || states.has('stopped')) return 1
  if (states.has('differs') || states.has('offline') || states.has('pending')) return 3
  return states.has('unmanaged') ? 4 : 0
}

/** For programs, as one line. The shape is the same for all commands. */
export function reportsJson(reports: readonly DeviceReport[], exitCode: number): string {
  return JSON.stringify({
    exit_code: exitCode,
    summary: { devices: reports.length, ...summaryOf(reports) },
    devices: reports.map(({ name, tags, state, problem = null, verdict, seen, tunnels }) => ({
      ...{ name, tags, state, problem, verdict },
      last_seen_at: seen?.at ?? null,
      offline_reason: seen?.reason ?? null,
      tunnels: tunnels.map(({ action, domain, changes, url, state }) => ({
        action,
        domain,
        changes,
        url,
        state,
      })),
    })),
  })
}
