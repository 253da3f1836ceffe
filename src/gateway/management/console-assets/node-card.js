import { ask } from './api.js'
import { actionButton, badge, facts } from './card.js'
import { confirm } from './confirm.js'
import { element, fill, setText } from './element.js'
import { figures } from './figures.js'
import { formatBytes, formatDate, formatNumber } from './format.js'
import { nodeName } from './node-name.js'
import { errorNotice, say } from './notice.js'

const FIGURES = [
  'Sessions',
  'Endpoints',
  'Requests',
  'Open requests',
  'Traffic',
  'Memory',
  'Processor',
]
const UNKNOWN = '–'

/** One gateway of the site; its figures are updated in place. */
export function nodeCard(node, reload) {
  let shown = node
  const state = element('span', {})
  const fields = figures('figures', FIGURES)
  const about = element('div', {})
  const progress = element('p', { class: 'outcome', role: 'status' })
  const problem = element('div', {})
  const drain = actionButton('Drain', nodeName(node), () =>
    attempt(() => askToDrain(shown, reload)),
  )
  const undo = actionButton('Cancel drain', nodeName(node), () =>
    attempt(() => takeBack(shown, reload)),
  )
  const forget = actionButton('Forget', nodeName(node), () => askToForget(shown, reload), true)
  const card = element(
    'li',
    { class: 'card' },
    element(
      'article',
      {},
      element(
        'div',
        { class: 'card-head' },
        element(
          'div',
          { class: 'card-title' },
          element('h2', { tabindex: '-1' }, node.name),
          state,
        ),
        element('div', { class: 'row' }, drain, undo, forget),
      ),
      progress,
      fields.node,
      about,
      problem,
    ),
  )
  let said = ''
  return { node: card, update }

  function update(it) {
    shown = it
    drain.hidden = it.state !== 'live' || !it.lease
    undo.hidden = it.state !== 'draining'
    forget.hidden = it.state !== 'gone'
    fields.node.hidden = it.state === 'gone'
    fields.show(figuresOf(it))
    setText(progress, progressOf(it))
    // What does not change is not painted anew: somebody may be about to copy it.
    const now = JSON.stringify([it.state, it.is_reached, it.version, it.since, it.lease?.state])
    if (now === said) return
    said = now
    fill(state, badgeOf(it))
    fill(about, factsOf(it))
  }

  async function attempt(run) {
    fill(problem)
    try {
      await run()
    } catch (error) {
      fill(problem, errorNotice(error))
    }
  }
}

function badgeOf({ state, is_reached: isReached, lease }) {
  if (state === 'gone') return badge(lease?.state === 'lost' ? 'Lost' : 'Stopped', 'bad')
  if (!isReached) return badge('No answer', 'bad')
  if (lease?.state === 'lost') return badge('No PostgreSQL', 'wait')
  if (lease?.state === 'overdue') return badge('Late', 'wait')
  return state === 'draining' ? badge('Draining', 'wait') : badge('Live', 'good')
}

function figuresOf({ agents, endpoints, load, requestsPerS, processor, bytesPerS }) {
  const number = (value) => (value === null || value === undefined ? UNKNOWN : formatNumber(value))
  return {
    Sessions: number(agents),
    Endpoints: number(endpoints),
    Requests: requestsPerS === undefined ? UNKNOWN : `${formatNumber(requestsPerS)}/s`,
    'Open requests': number(load?.requests_active),
    Traffic: bytesPerS === undefined ? UNKNOWN : `${formatBytes(bytesPerS)}/s`,
    Memory: load ? formatBytes(load.memory_bytes) : UNKNOWN,
    Processor: processor === undefined ? UNKNOWN : `${formatNumber(Math.round(processor * 100))} %`,
  }
}

function progressOf({ drain, drain_given_up: givenUp }) {
  if (!drain) return givenUp ? `The drain was cancelled. ${givenUp.reason}` : ''
  if (drain.is_done) return 'Drained. You can stop this gateway without affecting visitors.'
  const { agents, endpoints, requests } = drain.left
  return `Left: ${agents} of ${drain.from.agents} sessions, ${endpoints} of ${drain.from.endpoints} endpoints, ${requests} requests.`
}

function factsOf(it) {
  const {
    version,
    since,
    started_at: startedAt,
    peer_address: address,
    lease,
    is_self: isSelf,
  } = it
  return facts(
    ['Version', version],
    [it.state === 'gone' ? 'Gone' : 'Since', formatDate(since)],
    ['Started', it.state === 'gone' ? undefined : formatDate(startedAt)],
    ['Address', address && element('code', {}, address)],
    ['Lease', lease && `${lease.state}, epoch ${formatNumber(lease.epoch)}`],
    ['Here', isSelf ? 'serves this page' : undefined],
    ['Id', element('code', {}, it.id)],
  )
}

async function askToDrain(node, reload) {
  const name = nodeName(node)
  const isDone = await confirm({
    title: `Drain ${name}?`,
    text: 'Its agents and their names move to the other gateways one by one. Visitors are not affected.',
    action: 'Drain',
    isDangerous: false,
    method: 'POST',
    path: `api/nodes/${node.id}/drain`,
    said: `${name} is draining.`,
  })
  if (isDone) await reload()
}

async function askToForget(node, reload) {
  const name = nodeName(node)
  const isDone = await confirm({
    title: `Forget ${name}?`,
    text: 'Removes a lost gateway from the cluster. It can only return as a new gateway, with a new join token.',
    action: 'Forget gateway',
    method: 'DELETE',
    path: `api/nodes/${node.id}`,
    said: `${name} was removed from the cluster.`,
  })
  if (isDone) await reload()
}

async function takeBack(node, reload) {
  await ask('POST', `api/nodes/${node.id}/undrain`)
  say(`The drain of ${nodeName(node)} is cancelled.`)
  await reload()
}
