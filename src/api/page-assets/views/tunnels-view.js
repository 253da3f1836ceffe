import { openAddForm } from '../add-form.js'
import { ask } from '../api.js'
import { element, fill, keepChildren, keepFocus } from '../element.js'
import { say } from '../notice.js'
import { poll } from '../poll.js'
import { tunnelCard } from '../tunnel-card.js'
import { verdict } from '../verdict.js'

const REFRESH_MS = 3_000

const PENDING = 'The tunnel was added. It gets its public name when the link is up.'

/** A problem of the link stands above all tunnels. The cards do not repeat it. */
const isOfLink = (tunnel, { link }) =>
  link.last_error !== null && tunnel.last_error === link.last_error

/** The verdict of the device, and its tunnels. */
export function tunnelsView() {
  const kept = new Map()
  const problem = element('div', {})
  const seen = verdict({ onConfirmed: () => live.now() })
  const list = element('ul', { class: 'cards', 'aria-label': 'Tunnels' })
  const below = element('div', { class: 'below' })
  const headButton = addButton()
  const node = element(
    'div',
    {},
    problem,
    seen.node,
    element('div', { class: 'section-head' }, element('h2', {}, 'Tunnels'), headButton),
    list,
    below,
  )
  const live = poll({ everyMs: () => REFRESH_MS, problem, look })
  return { node, open: live.open, close: live.close }

  async function look(isBackground) {
    const [status, tunnels] = await Promise.all([
      ask('GET', 'api/status', { isBackground }),
      ask('GET', 'api/tunnels?view=status', { isBackground }),
    ])
    return () => {
      seen.show(status, tunnels)
      const shown = tunnels.map((it) => ({ ...it, isQuiet: isOfLink(it, status) }))
      keepChildren(list, shown, kept, (tunnel) => tunnelCard(tunnel, { onRemoved: live.now }))
      // One button of a kind is enough: an empty list has its own.
      headButton.hidden = tunnels.length === 0
      const isEmpty = Boolean(below.querySelector('.empty'))
      if (tunnels.length > 0) fill(below)
      else if (!isEmpty) fill(below, noTunnels())
      keepFocus()
    }
  }

  function noTunnels() {
    return element(
      'div',
      { class: 'empty' },
      element('h3', {}, 'No tunnels'),
      element('p', {}, 'A tunnel makes a service of this device reachable at a public URL.'),
      addButton(),
    )
  }

  function addButton() {
    return element(
      'button',
      { type: 'button', class: 'button button-change button-primary', onclick: add },
      'Add a tunnel',
    )
  }

  async function add() {
    const tunnel = await openAddForm()
    if (!tunnel) return
    say(tunnel.url === '' ? PENDING : `${tunnel.url} was added.`)
    await live.now()
  }
}
