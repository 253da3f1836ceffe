import { ask } from '../api.js'
import { ApiError } from '../asking.js'
import { conditionText, isServing } from '../condition.js'
import { element, fill, keepChildren, keepFocus, setText } from '../element.js'
import { say } from '../notice.js'
import { poll } from '../poll.js'
import { trafficWatch } from '../traffic.js'
import { openAddForm } from '../tunnel-form.js'
import { tunnelRow } from '../tunnel-row.js'
import { verdict } from '../verdict.js'

const REFRESH_MS = 3_000
/** Older data is grey, also while an answer may still come. */
const STALE_MS = 15_000
/** From this number of tunnels on, the list has a search. */
const MANY_TUNNELS = 9
/** Problems first, in this order. */
const ORDER = [
  'refused',
  'service_down',
  'offline',
  'service_slow',
  'busy',
  'slow_link',
  'opening',
  'checking',
  'unverified',
  'working',
]

const PENDING = 'The tunnel was added. It gets its public name when the link is up.'

/** The verdict of the device, and its tunnels. */
export function tunnelsView({ session }) {
  const { hostname } = session
  const kept = new Map()
  const problem = element('div', {})
  const seen = verdict({ hostname, onConfirmed: () => live.now() })
  const list = element('ul', { class: 'tunnels', 'aria-label': 'Tunnels' })
  const below = element('div', { class: 'below' })
  const headButton = addButton()
  const search = element('input', {
    type: 'search',
    class: 'search',
    placeholder: 'Name, port or state',
    'aria-label': 'Find tunnels',
    autocomplete: 'off',
    autocapitalize: 'none',
    spellcheck: 'false',
    hidden: true,
    oninput: () => showList(),
  })
  const found = element('p', { class: 'hint', role: 'status' })
  const node = element(
    'div',
    {},
    problem,
    seen.node,
    element('div', { class: 'section-head' }, element('h2', {}, 'Tunnels'), search, headButton),
    found,
    list,
    below,
  )
  const live = poll({ everyMs: () => REFRESH_MS, problem, look })
  const traffic = trafficWatch()
  let tunnels = []
  /** Domain of the agent API. */
  let own
  /** Time of the shown data. */
  let seenAt
  return { node, open: live.open, close: live.close }

  async function look(isBackground) {
    node.classList.toggle('is-stale', Date.now() - seenAt > STALE_MS)
    try {
      const [status, now] = await Promise.all([
        ask('GET', 'api/status', { isBackground }),
        ask('GET', 'api/tunnels?view=status', { isBackground }),
      ])
      return () => {
        show(status, now)
        void traffic.refresh(true, showTraffic)
      }
    } catch (error) {
      throw lost(error)
    }
  }

  function show(status, now) {
    seenAt = Date.now()
    node.classList.remove('is-stale')
    document.title = `${hostname}: ${titleOf(status, now)}`
    seen.show(status, now)
    tunnels = shownTunnels(now, status)
    own = status.own_endpoint?.domain
    showList()
    keepFocus()
  }

  function showTraffic() {
    for (const [id, row] of kept) row.showTraffic(traffic.of(id))
  }

  /** Without an answer, the data of before stays, with its age. */
  function lost(error) {
    if (seenAt === undefined || !(error instanceof ApiError) || error.code) return error
    node.classList.add('is-stale')
    document.title = `${hostname}: not connected`
    return new ApiError(`Not connected to the agent. Data is ${ageOf(Date.now() - seenAt)} old.`)
  }

  function showList() {
    const isLong = tunnels.length >= MANY_TUNNELS
    search.hidden = !isLong
    const words = isLong ? search.value.trim().toLowerCase().split(/\s+/) : []
    const fitting = tunnels.filter((tunnel) => words.every((word) => textOf(tunnel).includes(word)))
    keepChildren(list, fitting, kept, (tunnel) => tunnelRow(tunnel, { onChanged: live.now }))
    showTraffic()
    setText(found, countText(fitting.length, tunnels.length))
    // One button of a kind is enough: an empty list has its own.
    headButton.hidden = tunnels.length === 0
    const isEmpty = Boolean(below.querySelector('.empty'))
    if (tunnels.length > 0) fill(below)
    else if (!isEmpty) fill(below, noTunnels())
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
    const tunnel = await openAddForm({ hostname, tunnels, own })
    if (!tunnel) return
    say(tunnel.url === '' ? PENDING : `${tunnel.url} was added.`)
    await live.now()
  }
}

/** Short state of the device, for a tab among others. */
function titleOf({ healthy, link, advice }, tunnels) {
  if (link.state !== 'up') return link.state === 'connecting' ? 'connecting' : 'offline'
  const isBroken = ({ condition }) => !isServing(condition) && condition !== 'checking'
  const broken = tunnels.filter(isBroken).length
  const count = Math.max(broken, healthy ? 0 : advice.length)
  if (count > 0) return count === 1 ? '1 problem' : `${count} problems`
  if (tunnels.length === 0) return 'no tunnels'
  return tunnels.length === 1 ? '1 tunnel' : `${tunnels.length} tunnels`
}

/**
 * The tunnels, problems first. `isQuiet`: offline only because the link is down. `isTold`: the headline or
 * another tunnel tells the same problem.
 */
function shownTunnels(tunnels, { advice, link, verdict: headline }) {
  const told = [headline, ...advice.map(({ problem }) => problem)].map((it) => it.toLowerCase())
  const sorted = [...tunnels].sort(
    (a, b) => ORDER.indexOf(a.condition) - ORDER.indexOf(b.condition),
  )
  return sorted.map((tunnel) => {
    const isQuiet = tunnel.condition === 'offline' && link.state !== 'up'
    const problem = (tunnel.last_error ?? tunnel.reason ?? '').toLowerCase()
    const isTold = told.some((text) => text.includes(problem))
    if (!isQuiet) told.push(problem)
    return { ...tunnel, isQuiet, isTold }
  })
}

const textOf = ({ url, forwards_to, condition, protocol }) =>
  `${url} ${forwards_to} ${conditionText(condition)} ${protocol}`.toLowerCase()

function countText(shown, total) {
  if (shown === total) return ''
  return shown === 0 ? 'No matching tunnels.' : `${shown} of ${total} tunnels`
}

function ageOf(ms) {
  const minutes = Math.floor(ms / 60_000)
  if (minutes === 0) return 'less than a minute'
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`
}
