import { askPage } from '../api.js'
import { element, keepChildren, keepFocus } from '../element.js'
import { nodeCard } from '../node-card.js'
import { poll } from '../poll.js'
import { siteMap } from '../site-map.js'
import { pauseButton, viewHead } from '../view.js'

const CARDS = 25
const REFRESH_MS = 3_000

/** The gateways of the site: who is there, who serves how much, and who is about to end. */
export function nodesView() {
  const kept = new Map()
  const map = siteMap()
  const list = element('ul', { class: 'cards', 'aria-label': 'Nodes' })
  const earlier = pageButton('Previous', () => befores.pop())
  const later = pageButton('Next', () => befores.push(next))
  const pager = element('div', { class: 'pager', hidden: true }, earlier, later)
  const problem = element('div', {})
  const live = poll({ everyMs: () => REFRESH_MS, problem, look })
  const intro = 'Gateways of this cluster, their state and load.'
  const head = viewHead('Nodes', intro, pauseButton(live))
  const node = element('div', {}, head, problem, map.node, list, pager)
  /** By id: what a node had done at the look before. */
  let earlierLoads = new Map()
  let lookedAt = 0
  /** Where each page begins that leads to this one. */
  const befores = []
  let next
  return { node, open: live.open, close: live.close }

  async function look(isBackground) {
    const before = befores.at(-1)
    const page = await askPage('nodes', 'nodes', { before, limit: CARDS, isBackground })
    return () => {
      next = page.next
      const nodes = withRates(page.items)
      map.show(nodes)
      keepChildren(list, nodes, kept, (it) => nodeCard(it, live.now))
      keepFocus()
      pager.hidden = befores.length === 0 && !next
      earlier.disabled = befores.length === 0
      later.disabled = !next
    }
  }

  /** A rate is known from the second look on. */
  function withRates(nodes) {
    const now = performance.now()
    const seconds = Math.max(0.001, (now - lookedAt) / 1_000)
    lookedAt = now
    const rated = nodes.map((it) => {
      const last = it.load && earlierLoads.get(it.id)
      const rate = (name) => last && Math.max(0, (it.load[name] - last[name]) / seconds)
      return {
        ...it,
        requestsPerS: rate('requests'),
        processor: rate('processor_seconds'),
        bytesPerS: last && rate('bytes_in') + rate('bytes_out'),
      }
    })
    earlierLoads = new Map(nodes.filter(({ load }) => load).map(({ id, load }) => [id, load]))
    return rated
  }

  function pageButton(label, turn) {
    const button = element('button', { type: 'button', class: 'button' }, label)
    button.addEventListener('click', () => {
      turn()
      void live.now()
    })
    return button
  }
}
