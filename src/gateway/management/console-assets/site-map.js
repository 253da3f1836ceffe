import { element, fill } from './element.js'
import { formatCount } from './format.js'
import { nodeName } from './node-name.js'
import { shareBar } from './share-bar.js'

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
      : `${formatCount(endpoints, 'endpoint')}, ${formatCount(agents, 'session')}, ${Math.round(share * 100)} %`
  return element(
    'li',
    { class: `site-row is-${state}` },
    element('span', { class: 'site-name' }, nodeName(node)),
    shareBar(share),
    element('span', { class: 'site-share' }, said),
  )
}
