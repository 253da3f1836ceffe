import type { TunnelSetView } from '../../api/tunnels/tunnel-set-view.ts'
import { type Colour, type Paint, plainLine, tableText } from '../local/terminal-text.ts'
import type { DeviceOutcome, DeviceState } from './device-outcome.ts'

type Step = TunnelSetView['tunnels'][number]

const SIGNS: Readonly<Record<Step['action'], readonly [sign: string, colour: Colour]>> = {
  create: ['+', 'green'],
  replace: ['~', 'yellow'],
  delete: ['-', 'red'],
  keep: [' ', 'dim'],
}
const STATES: Readonly<Record<DeviceState, readonly [words: string, colour: Colour]>> = {
  unmanaged: ['no set is for it', 'dim'],
  same: ['as it shall be', 'green'],
  differs: ['differs', 'yellow'],
  applied: ['changed', 'green'],
  pending: ['stored, and not all is online', 'yellow'],
  offline: ['offline', 'yellow'],
  failed: ['failed', 'red'],
}

const MAX_SHOWN = 300

/** One device: its state, and a line for each tunnel that differs, or did. */
export function outcomeText(
  { name, state, tunnels, problem }: DeviceOutcome,
  paint: Paint,
): string {
  const [words, colour] = STATES[state]
  const why = problem === undefined ? '' : `: ${plainLine(problem)}`
  const lines = [`${paint('bold', plainLine(name))}  ${paint(colour, words)}${why}`]
  for (const tunnel of tunnels) {
    const [sign, signColour] = SIGNS[tunnel.action]
    lines.push(
      `  ${paint(signColour, sign)} ${plainLine(tunnel.domain || 'tcp, address to come')}${changesText(tunnel)}`,
    )
  }
  return `${lines.join('\n')}\n`
}

/** `  forwards_to localhost:1 → localhost:2, policy changed` */
function changesText({ action, changes }: Step): string {
  if (action === 'delete') return ''
  const parts = Object.entries(changes).map(([field, change]) => {
    if (typeof change === 'string') return `${field} ${action === 'create' ? 'given' : 'changed'}`
    const [before, after] = change.slice(0, 2).map(valueText)
    return action === 'create' ? `${field} ${after}` : `${field} ${before} → ${after}`
  })
  return parts.length > 0 ? `  ${plainLine(parts.join(', '))}` : ''
}

/** What a device says may be anything, and of any length. */
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

/** A line for each device: what becomes of its tunnels, and what it says of itself. */
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
    return number > 0 ? [`${number} ${STATES[state][0]}`] : []
  })
  const steps = outcomes.flatMap(({ tunnels }) => tunnels)
  const of = (action: Step['action']) => steps.filter((step) => step.action === action).length
  const [created, replaced, deleted] = [of('create'), of('replace'), of('delete')]
  const told = isApply
    ? `Tunnels: ${created} created, ${replaced} replaced, ${deleted} deleted`
    : `Tunnels: ${created} to create, ${replaced} to replace, ${deleted} to delete`
  return `${told}. Devices: ${parts.join(', ') || 'none'}.\n`
}

/** 0: all is as it shall be. 2: something is left to do. 1: a device has failed. */
export function exitCodeOf(outcomes: readonly DeviceOutcome[]): 0 | 1 | 2 {
  const states = new Set(outcomes.map(({ state }) => state))
  if (states.has('failed')) return 1
  return states.has('differs') || states.has('offline') || states.has('pending') ? 2 : 0
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
