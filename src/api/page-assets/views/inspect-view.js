import { ask } from '../api.js'
import { badge } from '../card.js'
import { selectField, textField } from '../dialog.js'
import { element, fill, keepChildren } from '../element.js'
import { exchangeDetails } from '../exchange-details.js'
import { formatBytes } from '../format.js'
import { errorNotice, say } from '../notice.js'
import { poll } from '../poll.js'
import { viewHead } from '../view.js'

const REFRESH_MS = 2_000
const MINUTES = [
  ['5', '5 minutes'],
  ['15', '15 minutes'],
  ['60', 'An hour'],
]
const STATES = {
  off: 'Off',
  starting: 'Starting …',
  on: 'On',
  ending: 'Ending …',
}
/** As in the style sheet. */
const NARROW = matchMedia('(max-width: 47.99rem)')
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })
const until = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' })

/** What visitors send to one tunnel, and what they get, while somebody looks. `argument` is its id. */
export function inspectView({ argument }) {
  const path = `api/tunnels/${encodeURIComponent(argument)}`
  const title = element('span', {}, 'Inspector')
  const state = element('span', { role: 'status' })
  const problem = element('div', {})
  const failure = element('div', {})
  const minutes = selectField({ name: 'minutes', label: 'For', options: MINUTES })
  const start = element('button', { type: 'submit', class: 'button button-primary' }, 'Start')
  const stop = button('Stop and delete', () => change('DELETE'))
  const filter = textField({ name: 'filter', label: 'Filter', placeholder: 'POST /api 500' })
  filter.addEventListener('input', () => showList())
  const list = element('ul', { class: 'exchanges', 'aria-label': 'Requests, newest first' })
  const none = element('p', { class: 'hint' })
  const details = element('section', { class: 'exchange-details', 'aria-label': 'Request details' })
  const inspector = element('div', { class: 'inspector' }, element('div', {}, list, none), details)
  const kept = new Map()
  NARROW.addEventListener('change', placeDetails)
  let seen = { state: 'off', exchanges: [] }
  let chosen
  const node = element(
    'div',
    {},
    viewHead(
      title,
      'Requests and responses of this tunnel while the inspector is on. Passwords, cookies and tokens are hidden.',
      element('a', { href: '#/tunnels', class: 'button' }, 'Back'),
    ),
    element(
      'form',
      { class: 'choice inspect-choice', onsubmit: begin },
      minutes,
      start,
      stop,
      state,
    ),
    problem,
    failure,
    filter,
    inspector,
  )
  const live = poll({ everyMs: () => REFRESH_MS, problem, look })
  return { node, open, close }

  function close() {
    NARROW.removeEventListener('change', placeDetails)
    live.close()
  }

  async function open() {
    await live.open()
    try {
      const { domain } = await ask('GET', path)
      fill(title, domain)
    } catch {
      // The first look has said it.
    }
  }

  function begin(event) {
    event.preventDefault()
    return change('PUT')
  }

  async function look(isBackground) {
    const answer = await ask('GET', `${path}/inspect`, { isBackground })
    return () => {
      seen = answer
      showState()
      showList()
      if (chosen && !chosen.isWhole) return choose(chosen.number)
    }
  }

  function showState() {
    const { state: word, ends_at: endsAt } = seen
    const isOn = word !== 'off'
    const text = endsAt ? `${STATES[word]} until ${until.format(new Date(endsAt))}` : STATES[word]
    fill(state, badge(text, isOn ? 'good' : 'plain'))
    stop.hidden = !isOn && seen.exchanges.length === 0
    start.textContent = word === 'on' ? 'Extend' : 'Start'
  }

  async function change(method) {
    fill(failure)
    try {
      const body = { minutes: Number(minutes.querySelector('select').value) }
      await ask(method, `${path}/inspect`, method === 'PUT' ? { body } : {})
      if (method === 'DELETE') forget()
      await live.now()
    } catch (error) {
      fill(failure, errorNotice(error))
    }
  }

  function forget() {
    chosen = undefined
    fill(details)
  }

  function showList() {
    const words = filter.querySelector('input').value.trim().toLowerCase().split(/\s+/)
    const fits = (exchange) => {
      const text = `${exchange.method} ${exchange.target} ${exchange.status ?? exchange.state}`
      return words.every((word) => text.toLowerCase().includes(word))
    }
    const fitting = seen.exchanges.filter(fits).reverse()
    keepChildren(
      list,
      fitting.map((exchange) => ({ id: exchange.number, ...exchange })),
      kept,
      exchangeRow,
    )
    placeDetails()
    none.hidden = fitting.length > 0
    none.textContent =
      seen.exchanges.length > 0
        ? 'No matching requests.'
        : seen.state === 'off'
          ? 'Start the inspector to see new requests here.'
          : 'No requests yet.'
  }

  /** Beside the list, or right below what was chosen where there is no room beside it. */
  function placeDetails() {
    const row = kept.get(chosen?.number)?.node
    const place = NARROW.matches && row ? row : inspector
    if (details.parentNode !== place) place.append(details)
  }

  function exchangeRow({ number }) {
    const method = element('strong', {})
    const target = element('span', { class: 'exchange-target' })
    const outcome = element('span', {})
    const facts = element('span', { class: 'muted' })
    const opener = element(
      'button',
      { type: 'button', class: 'exchange', onclick: () => choose(number) },
      element('span', { class: 'exchange-line' }, method, target),
      element('span', { class: 'exchange-line' }, outcome, facts),
    )
    let shown = ''
    return {
      node: element('li', {}, opener),
      update: (exchange) => {
        opener.setAttribute('aria-pressed', String(chosen?.number === number))
        if (JSON.stringify(exchange) === shown) return
        shown = JSON.stringify(exchange)
        fill(method, exchange.method)
        fill(target, exchange.target)
        fill(outcome, outcomeBadge(exchange))
        fill(facts, factsOf(exchange))
      },
    }
  }

  async function choose(number) {
    try {
      const exchange = await ask('GET', `${path}/inspect/${number}`)
      const isWhole = exchange.state !== 'open'
      if (chosen?.number !== number || !chosen.isWhole) {
        chosen = { number, isWhole }
        fill(details, exchangeDetails(exchange, { onReplay: () => replay(number) }))
        showList()
      }
    } catch (error) {
      fill(failure, errorNotice(error))
    }
  }

  async function replay(number) {
    fill(failure)
    try {
      const made = await ask('POST', `${path}/inspect/${number}/replay`)
      say(made.status === null ? 'Sent again: no response.' : `Sent again: ${made.status}.`)
      await live.now()
      await choose(made.number)
    } catch (error) {
      fill(failure, errorNotice(error))
    }
  }
}

function button(label, onclick) {
  return element('button', { type: 'button', class: 'button', onclick }, label)
}

export function outcomeBadge({ state, status }) {
  if (state === 'failed') return badge('no response', 'bad')
  if (state === 'open') return badge('open', 'wait')
  return badge(String(status), status >= 500 ? 'bad' : status >= 400 ? 'wait' : 'good')
}

function factsOf(exchange) {
  const { started_at: at, duration_ms: ms, response_bytes: bytes, replay_of: of } = exchange
  return [
    clock.format(new Date(at)),
    ms !== null && `${Math.round(ms)} ms`,
    bytes !== null && formatBytes(bytes),
    exchange.state === 'switched' && 'passed through',
    of !== null && `sent again, copy of ${of}`,
  ]
    .filter(Boolean)
    .join(' · ')
}
