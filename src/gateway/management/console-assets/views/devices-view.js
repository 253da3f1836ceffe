import { askPage } from '../api.js'
import { cloudEndpoints } from '../cloud-endpoints.js'
import { deviceCard } from '../device-card.js'
import { element, fill, keepChildren, keepFocus } from '../element.js'
import { figures } from '../figures.js'
import { formatBytes, formatNumber } from '../format.js'
import { gettingStarted } from '../getting-started.js'
import { errorNotice } from '../notice.js'
import { measureRates } from '../rates.js'
import { viewHead } from './list-view.js'

const REFRESH_MS = 2_000
const SIGNS_OF_LIFE = ['keydown', 'pointermove', 'wheel']

/** The devices that are connected now and the cloud endpoints, with their traffic as it comes in. */
export function devicesView() {
  const kept = new Map()
  const sums = figures('summary', ['Devices', 'Endpoints', 'Requests', 'In', 'Out'])
  const list = element('ul', { class: 'cards', 'aria-label': 'Devices online' })
  const below = element('div', { class: 'below' })
  const cloud = cloudEndpoints()
  const problem = element('div', {})
  const pause = element(
    'button',
    { type: 'button', class: 'button', 'aria-pressed': 'false', onclick: togglePause },
    'Pause',
  )
  const intro = 'Who is connected now, and what goes through.'
  const node = element(
    'div',
    {},
    viewHead('Devices', intro, pause),
    sums.node,
    problem,
    list,
    below,
    cloud.node,
  )
  const rates = measureRates()
  let timer
  let isPaused = false
  /** Somebody was at the page since it asked last: that keeps the session. */
  let isWatched = true
  /** The answer to an earlier question than this one is of no interest any more. */
  let question = 0
  let before
  return { node, open, close }

  function open() {
    document.addEventListener('visibilitychange', followVisibility)
    for (const type of SIGNS_OF_LIFE) document.addEventListener(type, watch)
    return refresh()
  }

  function close() {
    document.removeEventListener('visibilitychange', followVisibility)
    for (const type of SIGNS_OF_LIFE) document.removeEventListener(type, watch)
    rest()
  }

  function watch() {
    isWatched = true
  }

  function followVisibility() {
    return document.hidden || isPaused ? rest() : refresh()
  }

  function togglePause() {
    isPaused = !isPaused
    pause.setAttribute('aria-pressed', String(isPaused))
    return followVisibility()
  }

  function goTo(id) {
    before = id
    return refresh()
  }

  function rest() {
    question += 1
    clearTimeout(timer)
  }

  async function refresh() {
    rest()
    const asked = question
    const isBackground = !isWatched
    isWatched = false
    try {
      const [page, cloudPage] = await Promise.all([
        askPage('device_sessions', 'device_sessions', { before, isBackground }),
        askPage('cloud_endpoints', 'cloud_endpoints', { isBackground }),
      ])
      if (asked !== question) return
      fill(problem)
      cloud.show(cloudPage)
      await show(page)
    } catch (error) {
      // The same sentence is not read out again and again.
      if (asked === question && problem.textContent !== error.message) {
        fill(problem, errorNotice(error))
      }
    }
    if (asked === question && !isPaused) timer = setTimeout(refresh, REFRESH_MS)
  }

  async function show({ items, next }) {
    const measured = rates.measure(items)
    sums.show(sumsOf(measured, Boolean(next ?? before)))
    keepChildren(list, measured, kept, deviceCard)
    keepFocus()
    const isEmpty = items.length === 0 && before === undefined
    sums.node.hidden = isEmpty
    if (!isEmpty) fillPaging(next)
    else if (!below.querySelector('.empty')) fill(below, await gettingStarted())
  }

  function fillPaging(next) {
    const shown = `${before ?? ''}/${next ?? ''}`
    if (below.dataset.shown === shown && !below.querySelector('.empty')) return
    below.dataset.shown = shown
    fill(
      below,
      before && pageButton('Newest devices', undefined),
      next && pageButton('Older devices', next),
    )
  }

  function pageButton(label, id) {
    return element('button', { type: 'button', class: 'button', onclick: () => goTo(id) }, label)
  }
}

/** The sums of what is shown; `isPart` when there are more devices than that. */
function sumsOf(devices, isPart) {
  const endpoints = devices.flatMap((device) => device.endpoints)
  const sum = (read) => endpoints.reduce((total, endpoint) => total + read(endpoint), 0)
  return {
    Devices: isPart ? `${devices.length} shown` : devices.length,
    Endpoints: formatNumber(endpoints.length),
    Requests: `${formatNumber(sum(({ requestsPerS }) => requestsPerS))} / s`,
    In: `${formatBytes(sum(({ bytesInPerS }) => bytesInPerS))} / s`,
    Out: `${formatBytes(sum(({ bytesOutPerS }) => bytesOutPerS))} / s`,
  }
}
