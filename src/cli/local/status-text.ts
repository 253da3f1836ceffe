import type { StatusView } from '../../api/status-view.ts'
import type { TunnelStatusView } from '../../api/tunnel-view.ts'
import { commandRemedy } from './command-remedy.ts'
import {
  ageText,
  type Cell,
  type Colour,
  type Paint,
  plainLine,
  tableText,
} from './terminal-text.ts'

/** Tunnels that are named before a shared problem. */
const MAX_NAMED = 3

const COLOURS: Readonly<Record<TunnelStatusView['condition'], Colour>> = {
  working: 'green',
  service_down: 'red',
  service_slow: 'yellow',
  busy: 'yellow',
  slow_link: 'yellow',
  opening: 'yellow',
  checking: 'yellow',
  offline: 'red',
  refused: 'red',
  unverified: 'yellow',
}

/** The URL of a tunnel. The gateway gives the name of a new tunnel when the link is up. */
export const urlText = ({ url }: Pick<TunnelStatusView, 'url'>) => url || 'name pending'

/** The verdict, up to three problems with their fixes, the link, and a table of the tunnels. */
export function statusText(
  status: StatusView,
  tunnels: readonly TunnelStatusView[],
  paint: Paint,
): string {
  const now = Date.parse(status.clock.now)
  const isChecking = tunnels.some(({ condition }) => condition === 'checking')
  const well = isChecking ? 'yellow' : 'green'
  const mark = paint(status.healthy ? well : 'red', '●')
  const { link, own_endpoint: own, update } = status
  const address = link.server_addr ?? 'the hosted service'
  const lines = [
    `${mark} ${paint('bold', plainLine(status.verdict))}`,
    ...status.advice.map((advice) => {
      const remedy = commandRemedy(advice.remedy, tunnelIn(advice, tunnels))
      return `  - ${adviceText(plainLine(advice.problem), plainLine(remedy))}`
    }),
    `  link ${linkText(link.state)} for ${ageText(link.since, now)}, ${plainLine(address)}`,
    ...(own ? [`  API  ${ownText(own.state)}, ${plainLine(own.url)}`] : []),
    ...(update ? [`  ${plainLine(update.sentence)}`] : []),
  ]
  const table = tunnels.length > 0 ? `\n${tunnelTable(tunnels, now, paint)}` : ''
  return `${lines.join('\n')}\n${table}`
}

/** A line for each mistake if a gateway refuses a policy: it names each with its pointer. */
function adviceText(problem: string, remedy: string): string {
  const [first = '', ...mistakes] = problem.split(POLICY_MISTAKE)
  if (mistakes.length === 0) return `${problem} ${remedy}`
  return [first, ...mistakes, remedy].join('\n      ')
}

const POLICY_MISTAKE = / (?=\/on_(?:tcp_connect|http_request|http_response)[^ ]*: )/

/** Name of the first tunnel with a problem. Undefined: the problem is not one of a tunnel. */
export function tunnelIn(
  { problem, remedy }: StatusView['advice'][number],
  tunnels: readonly TunnelStatusView[],
): string | undefined {
  const same = tunnels.filter((tunnel) => tunnel.remedy === remedy)
  // The name of a tunnel may be the end of another name.
  const [named] = (same.length > 0 ? same : tunnels)
    .filter(({ url_part }) => problem.includes(url_part))
    .sort((a, b) => b.url_part.length - a.url_part.length)
  return (named ?? same[0])?.url_part
}

/** The API at its public URL. */
const ownText = (state: string) => (state === 'waiting' ? 'not connected yet' : state)

/** `waiting for 5 s` would be read as the length of a pause. */
const linkText = (state: string) => (state === 'waiting' ? 'down' : state)

export function tunnelTable(
  tunnels: readonly TunnelStatusView[],
  now: number,
  paint: Paint,
): string {
  const heading = ['TUNNEL', 'STATE', 'FOR', 'FORWARDS TO'].map(
    (text): Cell => ({ text, colour: 'dim' }),
  )
  const rows = tunnels.map((tunnel): Cell[] => [
    { text: urlText(tunnel) },
    { text: conditionText(tunnel.condition), colour: COLOURS[tunnel.condition] },
    { text: ageText(tunnel.condition_since ?? tunnel.since, now) },
    { text: tunnel.forwards_to },
  ])
  return tableText([heading, ...rows], paint)
}

const conditionText = (condition: TunnelStatusView['condition']) => condition.replace('_', ' ')

/** `a.example.com, b.example.com, c.example.com and 7 more`. */
export function namesText(names: readonly string[]): string {
  const rest = names.length - MAX_NAMED
  const shown = names.slice(0, MAX_NAMED).map(plainLine).join(', ')
  return rest > 0 ? `${shown} and ${rest} more` : shown
}

/** Problems and fixes below the table of tunnels. Tunnels with the same problem share an entry. */
export function problemText(tunnels: readonly TunnelStatusView[], paint: Paint): string {
  const groups = new Map<string, TunnelStatusView[]>()
  for (const tunnel of tunnels) {
    const { reason, last_error: error, remedy } = tunnel
    if (reason === null) continue
    const key = JSON.stringify([error ?? reason, remedy])
    groups.set(key, [...(groups.get(key) ?? []), tunnel])
  }
  const lines = [...groups.values()].map((alike) => {
    const [first] = alike
    const { reason = '', last_error: error = null, remedy = null } = first ?? {}
    const name = alike.length === 1 ? first?.url_part : undefined
    const advice = remedy === null ? '' : `\n  → ${plainLine(commandRemedy(remedy, name))}`
    const names = namesText(alike.map(({ url_part }) => url_part))
    return `${paint('bold', names)}: ${plainLine(error ?? reason ?? '')}${advice}`
  })
  return lines.length > 0 ? `\n${lines.join('\n')}\n` : ''
}
