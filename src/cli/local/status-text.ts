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

const STATE_COLOURS: Readonly<Record<TunnelStatusView['state'], Colour>> = {
  online: 'green',
  opening: 'yellow',
  waiting: 'yellow',
  closing: 'dim',
  refused: 'red',
}
const UPSTREAM_COLOURS: Readonly<Partial<Record<TunnelStatusView['upstream'], Colour>>> = {
  up: 'green',
  down: 'red',
  slow: 'yellow',
  busy: 'yellow',
  garbage: 'red',
  untrusted: 'red',
  old_tls: 'red',
}

/** One sentence, the link, a table of the tunnels, and remedies for those with problems. */
export function statusText(
  status: StatusView,
  tunnels: readonly TunnelStatusView[],
  paint: Paint,
): string {
  const now = Date.parse(status.clock.now)
  const mark = status.healthy ? paint('green', '●') : paint('red', '●')
  const { link, own_endpoint: own, update } = status
  const address = link.server_addr ?? 'the hosted service'
  const lines = [
    `${mark} ${paint('bold', plainLine(status.verdict))}`,
    `  link ${link.state} for ${ageText(link.since, now)}, ${plainLine(address)}`,
    ...(own ? [`  API  ${own.state}, ${plainLine(own.url)}`] : []),
    ...(update ? [`  ${plainLine(update.sentence)}`] : []),
  ]
  const table = tunnels.length > 0 ? `\n${tunnelTable(tunnels, now, paint)}` : ''
  return `${lines.join('\n')}\n${table}${problemText(tunnels, paint)}`
}

export function tunnelTable(
  tunnels: readonly TunnelStatusView[],
  now: number,
  paint: Paint,
): string {
  const heading = ['TUNNEL', 'STATE', 'FOR', 'FORWARDS TO', 'UPSTREAM'].map(
    (text): Cell => ({ text, colour: 'dim' }),
  )
  const rows = tunnels.map((tunnel): Cell[] => {
    const upstreamColour = UPSTREAM_COLOURS[tunnel.upstream]
    return [
      { text: tunnel.url },
      { text: tunnel.state, colour: STATE_COLOURS[tunnel.state] },
      { text: ageText(tunnel.since, now) },
      { text: tunnel.forwards_to },
      { text: tunnel.upstream, ...(upstreamColour ? { colour: upstreamColour } : {}) },
    ]
  })
  return tableText([heading, ...rows], paint)
}

/** Reasons and remedies of tunnels with problems, below the table. */
export function problemText(tunnels: readonly TunnelStatusView[], paint: Paint): string {
  const lines = tunnels.flatMap(({ domain, reason, last_error: error, remedy }) => {
    if (reason === null) return []
    const why = plainLine(error ?? reason)
    const advice = remedy === null ? [] : [`  → ${plainLine(remedy)}`]
    return [`${paint('bold', plainLine(domain))}: ${why}`, ...advice]
  })
  return lines.length > 0 ? `\n${lines.join('\n')}\n` : ''
}
