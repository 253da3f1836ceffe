import { ask, askPage } from '../api.js'
import { element, fill } from '../element.js'
import { itemList } from '../item-list.js'
import { collator, listFilter } from '../list-filter.js'
import { errorNotice } from '../notice.js'
import { serverFilter } from '../server-filter.js'
import { emptyState, viewHead } from '../view.js'

const PAGE = 100
/** So many items are loaded to be searched and sorted here. The server searches longer lists. */
const MAX_LOADED = 2_000
const TYPING_MS = 250
const FOLLOW_MS = 2_000
const RANKS = { bad: 0, wait: 1, plain: 2, good: 3 }

/**
 * A view that lists one resource: compact lines, search, order, pages, and details on demand.
 *
 * - `create` opens a form and resolves with the new item, if there is one.
 * - `nameOf`, `stateOf` and `cellsOf` make the line of an item. `details` makes its details, and gets functions
 *   to call after a change: `reload`, or `replace` with the new item.
 * - `search` has the placeholder, further texts of an item, and the fields for searches by the server.
 * - `orders` are further orders.
 * - `ownerOf` offers a selection of owners.
 * - `isPending`: the item changes soon without a user, and is asked for again.
 * - `onServer` is for lists without an end: the server filters. It has the selections and their filter.
 * @param {{ title: string, nouns?: string, intro: string, path: string, collection: string, createLabel?: string,
 *   create?: () => Promise<any>, empty: { title: string, text: string }, className?: string,
 *   prepare?: (items: any[]) => Promise<void>,
 *   nameOf: (item: any) => string, stateOf: (item: any) => { text: string, tone: string },
 *   cellsOf: (item: any) => (string | undefined)[],
 *   details: (item: any, after: { reload: () => Promise<void>, replace: (item: any) => void }) =>
 *     { node: HTMLElement, update?: (item: any) => boolean },
 *   search: { placeholder: string, fields: string[], texts?: (item: any) => any[] },
 *   orders?: Record<string, { label: string, compare: (a: any, b: any) => number }>,
 *   ownerOf?: (item: any) => string | undefined, isPending?: (item: any) => boolean,
 *   onServer?: { selections?: any[], fields?: HTMLElement[], filterOf: (values: any) => any[] } }} options
 */
export function listView(options) {
  const { title, intro, path, collection, createLabel, create, empty, prepare } = options
  const { nameOf, stateOf, cellsOf, details, search, onServer, isPending = () => false } = options
  const { nouns = title.toLowerCase() } = options
  const problem = element('div', {})
  const below = element('div', { class: 'below' })
  const headButton = createButton()
  if (headButton) headButton.hidden = true
  const filter = listFilter({ ...filterOptions(options), label: `Filter ${nouns}`, onChange })
  filter.node.hidden = true
  const list = itemList({
    label: title,
    nouns,
    className: options.className,
    filter: onServer ? { choose: (all) => [...all] } : filter,
    summary: (item) => {
      const { text, tone } = stateOf(item)
      return { name: nameOf(item), state: text, tone, cells: cellsOf(item) }
    },
    details: (item) => details(item, { reload: load, replace }),
    more: () => attempt(more),
  })
  const node = element(
    'div',
    {},
    viewHead(title, intro, headButton),
    problem,
    filter.node,
    list.node,
    below,
  )
  let items = []
  /** The id that the next page begins before. Undefined: all items are loaded. */
  let next
  /** The filter of the server that `items` match. */
  let filtered = ''
  let isAdding = false
  /** Number of the latest load. Answers to earlier ones are ignored. */
  let question = 0
  let typing
  let following
  return { node, open: load, close }

  function close() {
    question += 1
    clearTimeout(typing)
    clearTimeout(following)
    list.close()
  }

  function createButton() {
    return (
      create &&
      element(
        'button',
        { type: 'button', class: 'button button-change button-primary', onclick: add },
        createLabel,
      )
    )
  }

  async function add() {
    if (isAdding) return
    isAdding = true
    await attempt(async () => {
      if ((await create?.()) !== undefined) await loadItems()
    })
    isAdding = false
  }

  function load() {
    return attempt(loadItems)
  }

  async function loadItems() {
    question += 1
    const asked = question
    const wanted = wantedFilter()
    const isFirst = items.length === 0
    const limit = onServer ? Math.max(PAGE, items.length) : MAX_LOADED
    const found = []
    let before
    do {
      const page = await askItems(wanted, before)
      if (asked !== question) return
      found.push(...page.items)
      before = page.next
      // Later loads replace the list at once, so that nothing moves in the meantime.
      const isDone = !before || found.length >= limit
      if (isFirst || isDone) show([...found], before, wanted)
    } while (before && found.length < limit)
    // The user has typed while the first items came.
    if (wantedFilter() !== filtered) await loadItems()
  }

  async function more() {
    question += 1
    const asked = question
    const page = await askItems(filtered, next)
    if (asked === question) show([...items, ...page.items], page.next, filtered)
  }

  async function askItems(wanted, before) {
    const page = await askPage(path, collection, { before, filter: wanted, limit: PAGE })
    await prepare?.(page.items)
    return page
  }

  function show(found, before, wanted) {
    items = found
    next = before
    filtered = wanted
    const isEmpty = items.length === 0 && !next && !filtered
    filter.node.hidden = isEmpty
    // One button of a kind is enough: an empty list has its own.
    if (headButton) headButton.hidden = isEmpty
    if (!onServer && !filtered) filter.offer(items)
    list.show(items, { isPart: next !== undefined, isEmpty })
    fill(below, isEmpty && emptyState(empty.title, empty.text, createButton()))
    follow()
  }

  function onChange() {
    list.goToStart()
    clearTimeout(typing)
    if (wantedFilter() !== filtered) typing = setTimeout(load, TYPING_MS)
  }

  /** The filter for the server. Empty while all items are here. */
  function wantedFilter() {
    const isWhole = !onServer && next === undefined && filtered === ''
    if (isWhole) return ''
    const chosen = onServer ? onServer.filterOf(filter.values()) : []
    return serverFilter(filter.words(), search.fields, chosen)
  }

  function replace(item) {
    const at = items.findIndex(({ id }) => id === item.id)
    if (at < 0) return
    show(items.with(at, item), next, filtered)
  }

  /** Asks again for the visible items that are pending. */
  function follow() {
    clearTimeout(following)
    if (!list.shown().some(isPending)) return
    following = setTimeout(async () => {
      const asked = question
      for (const { id } of list.shown().filter(isPending)) {
        try {
          const item = await ask('GET', `api/${path}/${id}`, { isBackground: true })
          if (asked !== question) return
          replace(item)
        } catch {
          // The next action of the user shows the problem.
        }
      }
      if (node.isConnected && asked === question) follow()
    }, FOLLOW_MS)
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

/** @param {any} options */
function filterOptions({ nameOf, stateOf, search, orders = {}, ownerOf, onServer }) {
  const { placeholder, texts = () => [] } = search
  if (onServer) {
    return { placeholder, texts, selections: onServer.selections, fields: onServer.fields }
  }
  const byName = (a, b) => collator.compare(nameOf(a), nameOf(b))
  const byTone = (a, b) => RANKS[stateOf(a).tone] - RANKS[stateOf(b).tone] || byName(a, b)
  const selections = [{ name: 'state', label: 'State', of: (item) => [stateOf(item).text] }]
  if (ownerOf) {
    const of = (item) => [ownerOf(item) ?? 'No owner']
    // Dialogs have a field with the name `owner`, and the id of a field follows its name.
    selections.push({ name: 'owned-by', label: 'Owner', of })
  }
  return {
    placeholder,
    texts: (item) => [nameOf(item), stateOf(item).text, ownerOf?.(item), item.id, ...texts(item)],
    selections,
    orders: {
      newest: { label: 'Newest first' },
      name: { label: 'Name', compare: byName },
      trouble: { label: 'Problems first', compare: byTone },
      ...orders,
    },
  }
}
