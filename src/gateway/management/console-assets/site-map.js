import { element, fill } from './element.js'
import { formatNumber } from './format.js'
import { nodeName } from './node-name.js'

const SVG = 'http://www.w3.org/2000/svg'
const WIDTH = 100

/** Which node serves how much of the site: a bar each, by what is online there. */
export function siteMap() {
  const rows = element('ul', { class: 'site-map' })
  const caption = element('h2', {}, 'Devices and endpoints by gateway')
  const node = element('section', { class: 'site', 'aria-label': 'Cluster' }, caption, rows)
  return { node, show }

  function show(nodes) {
    const known = nodes.filter(({ endpoints }) => endpoints !== null)
    const all = known.reduce((sum, { endpoints }) => sum + endpoints, 0)
    // One that is alone serves everything.
    node.hidden = nodes.filter(({ state }) => state !== 'gone').length < 2
    fill(
      rows,
      nodes.filter(({ state }) => state !== 'gone').map((it) => mapRow(it, all)),
    )
  }
}

function mapRow(node, all) {
  const { state, endpoints, agents } = node
  const share = endpoints !== null && all > 0 ? endpoints / all : 0
  const said =
    endpoints === null
      ? 'no answer'
      : `${count(endpoints, 'endpoint')}, ${count(agents, 'agent')}, ${Math.round(share * 100)} %`
  return element(
    'li',
    { class: `site-row is-${state}` },
    element('span', { class: 'site-name' }, nodeName(node)),
    bar(share),
    element('span', { class: 'site-share' }, said),
  )
}

const count = (number, noun) => `${formatNumber(number)} ${noun}${number === 1 ? '' : 's'}`

/** What it says stands beside it as text. */
function bar(share) {
  const svg = document.createElementNS(SVG, 'svg')
  const attributes = { class: 'site-bar', viewBox: `0 0 ${WIDTH} 1`, 'aria-hidden': 'true' }
  for (const [key, value] of Object.entries({ ...attributes, preserveAspectRatio: 'none' })) {
    svg.setAttribute(key, value)
  }
  const rect = document.createElementNS(SVG, 'rect')
  rect.setAttribute('width', String(Math.max(share > 0 ? 1 : 0, share * WIDTH)))
  rect.setAttribute('height', '1')
  svg.append(rect)
  return svg
}
