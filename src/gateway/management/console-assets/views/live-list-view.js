import { ask } from '../api.js'
import { element, fill } from '../element.js'
import { figures } from '../figures.js'
import { formatBytes, formatNumber } from '../format.js'
import { itemList } from '../item-list.js'
import { missingNodes } from '../missing-nodes.js'
import { poll } from '../poll.js'
import { measureSums } from '../rates.js'
import { emptyState, pauseButton, viewHead } from '../view.js'

const REFRESH_MS = 2_000
/** From so many items on, the gateway is asked less often. */
const MANY = 500
const REFRESH_MANY_MS = 5_000

/**
 * A view that lists all items of a kind with their traffic, and refreshes itself.
 *
 * - `path` is asked for the items. Its answer has them in `collection`.
 * - `sums` are the figures above the list, before requests and bytes.
 * - `filter` makes the form above the list. `summary` and `details` make the line and the details of an item.
 * - `createButton` makes the button that creates an item, if people can.
 * @param {{ title: string, intro: string, path: string, collection: string, className: string,
 *   sums: Record<string, (items: any[]) => number>, filter: (onChange: () => void) => any,
 *   summary: (item: any) => any, details: (item: any, reload: () => Promise<void>) => any,
 *   empty: { title: string, text: string }, createButton?: (reload: () => Promise<void>) => HTMLElement }} options
 */
export function liveListView(options) {
  const { title, intro, path, collection, className, summary, details, empty, createButton } =
    options
  const sums = figures('summary', [...Object.keys(options.sums), 'Requests', 'In', 'Out'])
  const filter = options.filter(() => list.goToStart())
  const list = itemList({
    label: title,
    nouns: title.toLowerCase(),
    className,
    filter,
    summary,
    details: (item) => details(item, live.now),
  })
  const below = element('div', { class: 'below' })
  const problem = element('div', {})
  const missing = missingNodes()
  const live = poll({
    everyMs: () => (count > MANY ? REFRESH_MANY_MS : REFRESH_MS),
    problem,
    look,
  })
  const headButton = createButton?.(live.now)
  const node = element(
    'div',
    {},
    viewHead(title, intro, headButton, pauseButton(live)),
    problem,
    missing.node,
    sums.node,
    filter.node,
    list.node,
    below,
  )
  const rates = measureSums()
  let count = 0
  hideParts(true)
  return { node, open: live.open, close }

  function close() {
    list.close()
    live.close()
  }

  async function look(isBackground) {
    const answer = await ask('GET', `api/${path}`, { isBackground })
    return () => {
      const items = rates.measure(answer[collection])
      count = items.length
      missing.show(answer.missing_nodes)
      hideParts(count === 0)
      showEmpty()
      sums.show(sumsOf(items))
      filter.offer(items)
      list.show(items, { isPart: answer.is_part })
      list.refresh()
    }
  }

  /** One button of a kind is enough: an empty list has its own. */
  function hideParts(isEmpty) {
    for (const part of [headButton, sums.node, filter.node]) if (part) part.hidden = isEmpty
  }

  function showEmpty() {
    if (count > 0) fill(below)
    // Otherwise it stays, so that its button keeps the focus.
    else if (below.children.length === 0) {
      fill(below, emptyState(empty.title, empty.text, createButton?.(live.now)))
    }
  }

  function sumsOf(items) {
    const own = Object.entries(options.sums).map(([name, of]) => [name, formatNumber(of(items))])
    const sum = (field) => items.reduce((total, item) => total + item[field], 0)
    return {
      ...Object.fromEntries(own),
      Requests: `${formatNumber(sum('requestsPerS'))}/s`,
      In: `${formatBytes(sum('bytesInPerS'))}/s`,
      Out: `${formatBytes(sum('bytesOutPerS'))}/s`,
    }
  }
}
