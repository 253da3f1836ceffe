import type { StatusView } from '../../api/status-view.ts'
import type { TunnelStatusView } from '../../api/tunnel-view.ts'
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
  const mark = paint(status.healthy ? 'green' : 'red', '●')
  const { link, own_endpoint: own, update } = status
  const address = link.server_addr ?? 'the hosted service'
  const lines = [
    `${mark} ${paint('bold', plainLine(status.verdict))}`,
    ...status.advice.map(({ problem, remedy }) => `  - ${plainLine(`${problem} ${remedy}`)}`),
    `  link ${link.state} for ${ageText(link.since, now)}, ${plainLine(address)}`,
    ...(own ? [`  API  ${own.state}, ${plainLine(own.url)}`] : []),
    ...(update ? [`  ${plainLine(update.sentence)}`] : []),
  ]
  const table = tunnels.length > 0 ? `\n${tunnelTable(tunnels, now, paint)}` : ''
  return `${lines.join('\n')}\n${table}`
}

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
    { text: ageText(tunnel.since, now) },
    { text: tunnel.forwards_to },
  ])
  return tableText([heading, ...rows], paint)
}

const conditionText = (condition: TunnelStatusView['condition']) => condition.replace('_', ' ')

/** Problems and fixes below the table of tunnels. Tunnels with the same problem share an entry. */
export function problemText(tunnels: readonly TunnelStatusView[], paint: Paint): string {
  const groups = new Map<string, string[]>()
  for (const { url_part: name, reason, last_error: error, remedy } of tunnels) {
    if (reason === null) continue
    const advice = remedy === null ? '' : `\n  → ${plainLine(remedy)}`
    const text = `${plainLine(error ?? reason)}${advice}`
    groups.set(text, [...(groups.get(text) ?? []), plainLine(name)])
  }
  const lines = [...groups].map(([text, domains]) => {
    const rest = domains.length - MAX_NAMED
    const names = domains.slice(0, MAX_NAMED).join(', ')
    return `${paint('bold', rest > 0 ? `${names} and ${rest} more` : names)}: ${text}`
  })
  return lines.length > 0 ? `\n${lines.join('\n')}\n` : ''
}
