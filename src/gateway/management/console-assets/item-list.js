import { element, keepChildren, keepFocus, setText } from './element.js'
import { formatNumber } from './format.js'
import { itemRow } from './item-row.js'

const ROWS = 50

/**
 * A list of lines in pages of 50, with the details of one item at a time. `filter` chooses from the items and
 * sorts them. `more` loads further items when the reader is past the last page; it resolves when they are shown.
 * @param {{ label: string, nouns: string, className?: string, filter: { choose: (items: any[]) => any[] },
 *   summary: (item: any) => any, details: (item: any) => any, more?: () => Promise<void> }} options
 */
export function itemList({ label, nouns, className = '', filter, summary, details, more }) {
  const kept = new Map()
  const list = element('ul', { class: `items ${className}`, 'aria-label': label })
  const none = element('p', { class: 'hint items-none', role: 'status' })
  const range = element('p', { class: 'hint', role: 'status' })
  const earlier = pageButton('Previous', () => goTo(page - 1))
  const later = pageButton('Next', goOn)
  const pager = element('div', { class: 'pager' }, earlier, range, later)
  const node = element('div', { hidden: true }, list, none, pager)
  let items = []
  let chosen = []
  let hasMore = false
  let page = 0
  /** The id of the item whose details are shown. */
  let opened
  return { node, show, shown, goToStart: () => goTo(0), refresh, close }

  /** Shows items. `isPart`: there are more of them. `isEmpty`: there are none, with any filter. */
  function show(now, { isPart = false, isEmpty = now.length === 0 } = {}) {
    items = now
    hasMore = isPart
    node.hidden = isEmpty
    showRows()
  }

  /** The items of the visible page. */
  function shown() {
    return chosen.slice(page * ROWS, (page + 1) * ROWS)
  }

  function refresh() {
    kept.get(opened)?.refresh()
  }

  function close() {
    for (const row of kept.values()) row.close()
  }

  function showRows() {
    chosen = filter.choose(items)
    const pages = Math.max(1, Math.ceil(chosen.length / ROWS))
    page = Math.min(page, pages - 1)
    const rows = shown()
    keepChildren(list, rows, kept, (item) => itemRow(item, { isOpen, toggle, summary, details }))
    keepFocus()
    const isEnd = page === pages - 1
    const isNone = chosen.length === 0 && !node.hidden
    setText(none, isNone ? `No ${nouns} match the filter.` : '')
    none.hidden = !isNone
    pager.hidden = chosen.length === 0
    earlier.hidden = pages === 1 && !hasMore
    later.hidden = earlier.hidden
    earlier.disabled = page === 0
    later.disabled = isEnd && !(hasMore && more)
    setText(range, rangeText(pages, rows.length))
  }

  function rangeText(pages, count) {
    const from = page * ROWS + 1
    const all = `${formatNumber(chosen.length)}${hasMore ? '+' : ''}`
    const span =
      pages === 1 && !hasMore
        ? `${all} shown`
        : `${formatNumber(from)} to ${formatNumber(from + count - 1)} of ${all}`
    const isFew = chosen.length < items.length
    const ofAll = isFew ? `, of ${formatNumber(items.length)}${hasMore ? '+' : ''} ${nouns}` : ''
    return `${span}${ofAll}`
  }

  function isOpen(id) {
    return opened === id
  }

  function toggle(id) {
    opened = opened === id ? undefined : id
    showRows()
  }

  function goTo(number) {
    page = Math.max(0, number)
    showRows()
    if (list.getBoundingClientRect().top < 0) list.scrollIntoView({ block: 'start' })
  }

  async function goOn() {
    const wanted = page + 1
    if (hasMore && (wanted + 1) * ROWS > chosen.length) await more?.()
    goTo(wanted)
  }

  function pageButton(text, onclick) {
    return element('button', { type: 'button', class: 'button', onclick }, text)
  }
}
