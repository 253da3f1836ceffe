import { askPage } from '../api.js'
import { element, fill, keepFocus } from '../element.js'
import { errorNotice } from '../notice.js'
import { emptyState, viewHead } from '../view.js'

/** Cards of a page: more of them are many screens of a phone. */
const CARDS = 25

/**
 * A view that lists one resource, newest first. `row` makes the card of an item; it gets `reload`
 * to call after a change. `create` opens the form and resolves with what was made, if anything.
 * `choice` makes the form that chooses what is listed, and says as a filter what that is. `isDense`: of
 * things that are read and not changed there are many, as lines of one sheet.
 * @param {{ title: string, intro: string, path: string, collection: string, createLabel?: string,
 *   create?: () => Promise<any>, empty: { title: string, text: string }, isDense?: boolean,
 *   row: (item: any, reload: () => Promise<void>) => HTMLElement,
 *   prepare?: (items: any[]) => Promise<void>,
 *   choice?: (reload: () => Promise<void>) => { node: HTMLElement, filter: () => string } }} options
 */
export function listView(options) {
  const { title, intro, path, collection, createLabel, create, empty, row, prepare } = options
  const { isDense = false } = options
  const list = element('ul', { class: isDense ? 'lines' : 'cards', 'aria-label': title })
  const below = element('div', { class: 'below' })
  const problem = element('div', {})
  const createButton = () =>
    create &&
    element(
      'button',
      { type: 'button', class: 'button button-change button-primary', onclick: add },
      createLabel,
    )
  const headButton = createButton()
  if (headButton) headButton.hidden = true
  const chosen = options.choice?.(load)
  let isAdding = false
  /** The answer to an earlier question than this one is of no interest any more. */
  let question = 0
  const head = viewHead(title, intro, headButton)
  const node = element('div', {}, head, chosen?.node, problem, list, below)
  return { node, open: load, close: () => {} }

  async function add() {
    if (isAdding) return
    isAdding = true
    await attempt(async () => {
      if ((await create?.()) !== undefined) await load()
    })
    isAdding = false
  }

  function load() {
    return attempt(async () => {
      const page = await ask()
      if (!page) return
      const { items, next } = page
      fill(list, items.map(toRow))
      // One button of a kind is enough: an empty list has its own.
      if (headButton) headButton.hidden = items.length === 0
      fill(
        below,
        items.length === 0 && !next && emptyState(empty.title, empty.text, createButton()),
        next && moreButton(next),
      )
      keepFocus()
    })
  }

  function more(before) {
    return attempt(async () => {
      const page = await ask(before)
      if (!page) return
      const { items, next } = page
      const rows = items.map(toRow)
      list.append(...rows)
      fill(below, next && moreButton(next))
      rows[0]?.querySelector('h2')?.focus()
    })
  }

  /** A page, or undefined when another one was asked for meanwhile. */
  async function ask(before) {
    question += 1
    const asked = question
    const page = await askPage(path, collection, {
      before,
      filter: chosen?.filter(),
      limit: CARDS,
    })
    await prepare?.(page.items)
    return asked === question ? page : undefined
  }

  async function attempt(run) {
    fill(problem)
    try {
      await run()
    } catch (error) {
      fill(problem, errorNotice(error))
    }
  }

  function toRow(item) {
    return element('li', { class: isDense ? 'line' : 'card' }, row(item, load))
  }

  function moreButton(before) {
    return element(
      'button',
      { type: 'button', class: 'button', onclick: () => more(before) },
      'Show more',
    )
  }
}
