import { type Colour, type Paint, plainLine, tableText } from '../local/terminal-text.ts'
import type { TunnelStep as Step } from './device-api.ts'
import type { DeviceOutcome, DeviceState } from './device-outcome.ts'

const SIGNS: Readonly<Record<Step['action'], readonly [sign: string, colour: Colour]>> = {
  create: ['+', 'green'],
  replace: ['~', 'yellow'],
  delete: ['-', 'red'],
  keep: [' ', 'dim'],
}
const STATES: Readonly<Record<DeviceState, readonly [words: string, colour: Colour]>> = {
  unmanaged: ['not in any set', 'dim'],
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

/**
 * One device: its state, and a line for each planned or applied change. `isRetired`: the change removed the
 * device.
 */
export function outcomeText(
  { name, state, tunnels, problem }: DeviceOutcome,
  paint: Paint,
  isRetired = false,
): string {
  const [words, colour] = isRetired ? (['retired', 'green'] as const) : STATES[state]
  const why = problem === undefined ? '' : `: ${plainLine(problem)}`
  const lines = [`${paint('bold', plainLine(name))}  ${paint(colour, words)}${why}`]
  for (const tunnel of tunnels) {
    const [sign, signColour] = SIGNS[tunnel.action]
    lines.push(
      `  ${paint(signColour, sign)} ${plainLine(tunnel.domain || 'name pending')}${changesText(tunnel)}`,
    )
  }
  return `${lines.join('\n')}\n`
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

export interface DeviceRow {
  readonly name: string
  readonly tags: readonly string[]
  readonly state: DeviceState
  readonly problem: string | null
  readonly verdict: string | null
}

/** A line for each device: the changes of its tunnels, and its verdict. */
export function statusTable(rows: readonly DeviceRow[], paint: Paint): string {
  const heading = ['DEVICE', 'TAGS', 'TUNNELS', 'STATUS'].map((text) => ({
    text,
    colour: 'dim' as const,
  }))
  const cells = rows.map(({ name, tags, state, problem, verdict }) => {
    const [words, colour] = STATES[state]
    return [
      { text: name },
      { text: tags.join(' ') },
      { text: words, colour },
      { text: problem ?? verdict ?? '' },
    ]
  })
  return tableText([heading, ...cells], paint)
}

/** How many devices are how, in one line. */
export function summaryText(outcomes: readonly DeviceOutcome[], isApply: boolean): string {
  const count = (state: DeviceState) => outcomes.filter((it) => it.state === state).length
  const parts = (Object.keys(STATES) as DeviceState[]).flatMap((state) => {
    const number = count(state)
    return number > 0 ? [`${number} ${COUNTED[state]}`] : []
  })
  const steps = outcomes.flatMap(({ tunnels }) => tunnels)
  const of = (action: Step['action']) => steps.filter((step) => step.action === action).length
  const [created, replaced, deleted] = [of('create'), of('replace'), of('delete')]
  const told = isApply
    ? `Tunnels: ${created} created, ${replaced} replaced, ${deleted} deleted`
    : `Tunnels: ${created} to create, ${replaced} to replace, ${deleted} to delete`
  return `${told}. Devices: ${parts.join(', ') || 'none'}.\n`
}

/**
 * 0: every device matches the file. 3: something is left to do. 1: a device failed, or the command was
 * stopped. 2: wrong usage.
 */
export function exitCodeOf(outcomes: readonly DeviceOutcome[]): 0 | 1 | 3 {
  const states = new Set(outcomes.map(({ state }) => state))
  if (states.has('failed') || states.has('stopped')) return 1
  return states.has('differs') || states.has('offline') || states.has('pending') ? 3 : 0
}

/** For programs, as one line. */
export function outcomesJson(outcomes: readonly DeviceOutcome[]): string {
  return JSON.stringify({
    devices: outcomes.map(({ name, state, tunnels, problem = null }) => ({
      name,
      state,
      problem,
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
