import { ask } from './api.js'
import { facts } from './card.js'
import { element, fill } from './element.js'
import { formatBytes, formatNumber } from './format.js'

const SVG = 'http://www.w3.org/2000/svg'
/** At one sample every 3 to 5 seconds, some minutes. */
const MAX_SAMPLES = 60
const HEIGHT = 32

/** The traffic of the tunnels, and its course since the page was opened. */
export function trafficWatch() {
  /** Samples by tunnel, oldest first: the counts, and the time in milliseconds. */
  const samples = new Map()
  let isAsking = false
  return { refresh, of: (id) => samples.get(id) ?? [] }

  /** Errors are not told: the page tells them already. */
  async function refresh(isBackground, onNews) {
    if (isAsking) return
    isAsking = true
    try {
      const { tunnels } = await ask('GET', 'api/traffic', { isBackground })
      add(tunnels ?? [])
      onNews()
    } catch {
      // Shown by the next look.
    } finally {
      isAsking = false
    }
  }

  function add(tunnels) {
    const ids = new Set(tunnels.map(({ id }) => id))
    for (const id of samples.keys()) if (!ids.has(id)) samples.delete(id)
    for (const tunnel of tunnels) {
      const before = samples.get(tunnel.id) ?? []
      samples.set(tunnel.id, [...before, { ...tunnel, at: Date.now() }].slice(-MAX_SAMPLES))
    }
  }
}

/** Requests and errors, for a row. */
export function trafficText(samples) {
  const last = samples.at(-1)
  if (!last) return ''
  const errors = last.errors > 0 ? `, ${formatNumber(last.errors)} failed` : ''
  return `${formatNumber(last.requests)} ${last.requests === 1 ? 'request' : 'requests'}${errors}`
}

/** Counts of a tunnel, and the requests of the last minutes as bars. */
export function trafficPanel() {
  const node = element('div', { class: 'traffic' })
  return { node, show }

  function show(samples) {
    const last = samples.at(-1)
    if (!last) return fill(node)
    return fill(
      node,
      facts(
        ['Requests', formatNumber(last.requests)],
        ['Failed', formatNumber(last.errors)],
        ['Received', formatBytes(last.bytes_in)],
        ['Sent', formatBytes(last.bytes_out)],
      ),
      samples.length > 2 && chart(samples),
    )
  }
}

function chart(samples) {
  const deltas = samples.slice(1).map(({ requests }, at) => {
    const before = samples[at].requests
    // A new connection counts from 0.
    return requests < before ? requests : requests - before
  })
  const highest = Math.max(1, ...deltas)
  const minutes = Math.max(1, Math.round((Date.now() - samples[0].at) / 60_000))
  const total = deltas.reduce((sum, delta) => sum + delta, 0)
  const unit = minutes === 1 ? 'minute' : `${minutes} minutes`
  const text = `${formatNumber(total)} requests in the last ${unit}`
  const svg = document.createElementNS(SVG, 'svg')
  svg.setAttribute('viewBox', `0 0 ${(MAX_SAMPLES - 1) * 4} ${HEIGHT}`)
  svg.setAttribute('preserveAspectRatio', 'none')
  svg.setAttribute('class', 'chart')
  svg.setAttribute('aria-hidden', 'true')
  deltas.forEach((delta, at) => {
    const height = Math.max(1, (delta / highest) * HEIGHT)
    const bar = document.createElementNS(SVG, 'rect')
    const place = { x: at * 4, y: HEIGHT - height, width: 3, height }
    for (const [name, value] of Object.entries(place)) bar.setAttribute(name, String(value))
    svg.append(bar)
  })
  return element('figure', {}, svg, element('figcaption', { class: 'hint' }, text))
}
