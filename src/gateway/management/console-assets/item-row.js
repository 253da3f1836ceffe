import { badge } from './card.js'
import { element, fill, setText } from './element.js'

/**
 * An item as one line, updated in place. The line is a button that shows and hides the details.
 *
 * - `summary` returns the texts of the line. `tone` and `state` say the same, as a color and as text. Phones
 *   show only the first of `cells`.
 * - `details` makes the details of an item. They are made again when the item has changed, unless `update`
 *   returns true.
 * @param {{ id: string }} item
 * @param {{ isOpen: (id: string) => boolean, toggle: (id: string) => void,
 *   summary: (item: any) => { name: string, tone: string, state: string, title?: string,
 *     tags?: { text: string, tone?: string }[], cells: (string | undefined)[] },
 *   details: (item: any) => { node: HTMLElement, update?: (item: any) => boolean, refresh?: () => void,
 *     close?: () => void } }} options
 */
export function itemRow({ id }, { isOpen, toggle, summary, details }) {
  const dot = element('span', { class: 'dot', 'aria-hidden': 'true' })
  const name = element('span', { class: 'item-name' })
  const state = element('span', { class: 'item-state' })
  const button = element(
    'button',
    { type: 'button', class: 'item-line', 'aria-expanded': 'false', onclick: () => toggle(id) },
    dot,
    name,
    state,
  )
  const below = element('div', { class: 'item-below' })
  const node = element('li', { class: 'item' }, button, below)
  let tags
  let cells
  let shownTags
  /** The open details, and the item that they show as JSON. */
  let shown
  let shownItem
  return { node, update, refresh: () => shown?.refresh?.(), close: () => shown?.close?.() }

  function update(item) {
    const line = summary(item)
    setText(name, line.name)
    setText(state, line.state)
    if (state.title !== (line.title ?? '')) state.title = line.title ?? ''
    if (dot.dataset.tone !== line.tone) dot.dataset.tone = line.tone
    if (line.tags) showTags(line.tags)
    showCells(line.cells)
    showDetails(item)
  }

  function showTags(now) {
    if (!tags) {
      tags = element('span', { class: 'item-tags' })
      button.append(tags)
    }
    const text = JSON.stringify(now)
    if (text === shownTags) return
    shownTags = text
    fill(
      tags,
      now.map((it) => badge(it.text, it.tone)),
    )
  }

  function showCells(texts) {
    if (!cells) {
      cells = texts.map(() => element('span', { class: 'item-cell' }))
      button.append(...cells)
    }
    for (const [at, cell] of cells.entries()) setText(cell, texts[at] ?? '')
  }

  function showDetails(item) {
    const isShown = isOpen(id)
    if (isShown && shown) return updateDetails(item)
    if (!isShown && !shown) return
    button.setAttribute('aria-expanded', String(isShown))
    node.classList.toggle('is-open', isShown)
    shown?.close?.()
    shown = isShown ? details(item) : undefined
    shownItem = isShown ? JSON.stringify(item) : undefined
    fill(below, shown?.node)
  }

  function updateDetails(item) {
    const text = JSON.stringify(item)
    if (text === shownItem) return
    shownItem = text
    if (shown.update?.(item)) return
    const hasFocus = below.contains(document.activeElement)
    shown.close?.()
    shown = details(item)
    fill(below, shown.node)
    if (hasFocus) button.focus()
  }
}
