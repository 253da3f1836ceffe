import { selectField, textField } from './dialog.js'
import { element } from './element.js'

/** An ID of the API. It is random, so short words are in it by chance: a search finds it by its start. */
const ID = /^[a-z]+_[0-9A-Za-z]{20,}$/
/** More choices than this are found by search. */
const MAX_CHOICES = 100
export const collator = new Intl.Collator('en', { numeric: true, sensitivity: 'base' })

/**
 * The form above a list: search, selections and order. On a phone, only the search is visible until **Filter**
 * is pressed.
 *
 * - `texts` returns what the search looks at.
 * - A selection with `options` is fixed, and `matches` decides. Otherwise it offers the values that `of` returns,
 *   if they differ.
 * - `orders` without `compare` keeps the order of the list.
 * @param {{ label: string, placeholder: string, texts: (item: any) => (string | null | undefined)[],
 *   selections?: { name: string, label: string, options?: string[][], matches?: (item: any, value: string) => boolean,
 *     of?: (item: any) => string[] }[],
 *   fields?: HTMLElement[], orders?: Record<string, { label: string, compare?: (a: any, b: any) => number }>,
 *   onChange: () => void }} options
 */
export function listFilter({
  label,
  placeholder,
  texts,
  selections = [],
  fields = [],
  orders = {},
  onChange,
}) {
  const selects = selections.map((it) => ({
    ...it,
    field: selectField({
      name: it.name,
      label: it.label,
      options: it.options ?? [['', 'All']],
    }),
    offered: undefined,
  }))
  const order = selectField({
    name: 'order',
    label: 'Sort by',
    options: Object.entries(orders).map(([key, { label }]) => [key, label]),
  })
  const toggle = element(
    'button',
    { type: 'button', class: 'button choice-toggle', 'aria-expanded': 'false', onclick: unfold },
    'Filter',
  )
  const more = [...selects.map(({ field }) => field), ...fields]
  if (Object.keys(orders).length > 1) more.push(order)
  const form = element(
    'form',
    {
      class: 'choice',
      role: 'search',
      'aria-label': label,
      oninput: change,
      onsubmit: (event) => event.preventDefault(),
    },
    textField({ name: 'search', label: 'Search', placeholder, type: 'search' }),
    more.length > 0 && toggle,
    more,
  )
  /** What the search looks at, by item. */
  const searched = new WeakMap()
  return { node: form, choose, offer, values, words }

  function unfold() {
    const isOpen = form.classList.toggle('is-open')
    toggle.setAttribute('aria-expanded', String(isOpen))
  }

  function change() {
    const { search: _search, order: _order, ...rest } = values()
    const count = Object.values(rest).filter((value) => value !== '').length
    toggle.textContent = count === 0 ? 'Filter' : `Filter (${count})`
    onChange()
  }

  function values() {
    return Object.fromEntries(new FormData(form))
  }

  function words() {
    return String(values().search).split(/\s+/).filter(Boolean)
  }

  /** The matching items, in the chosen order. */
  function choose(items) {
    const asked = values()
    const looked = words().map((word) => word.toLowerCase())
    const isChosen = (item) =>
      selects.every(({ name, matches, of }) => {
        const value = String(asked[name])
        return value === '' || (of ? of(item).includes(value) : !matches || matches(item, value))
      }) && looked.every((word) => isIn(item, word))
    const chosen = items.filter(isChosen)
    const compare = orders[String(asked.order)]?.compare
    return compare ? chosen.sort(compare) : chosen
  }

  /** Offers the values that the items have. The selected value stays selected while it exists. */
  function offer(items) {
    for (const select of selects) {
      if (!select.of) continue
      const counts = new Map()
      for (const item of items) {
        for (const value of select.of(item)) counts.set(value, (counts.get(value) ?? 0) + 1)
      }
      const names = [...counts.keys()].sort(collator.compare)
      const text = names.map((name) => `${name} ${counts.get(name)}`).join()
      if (text === select.offered) continue
      select.offered = text
      const control = select.field.querySelector('select')
      const chosen = control.value
      control.replaceChildren(
        element('option', { value: '' }, 'All'),
        ...names.map((name) => element('option', { value: name }, `${name} (${counts.get(name)})`)),
      )
      control.value = counts.has(chosen) ? chosen : ''
      const isCommon = names.length === 1 && counts.get(names[0]) === items.length
      select.field.hidden = names.length === 0 || isCommon || names.length > MAX_CHOICES
    }
  }

  function isIn(item, word) {
    let known = searched.get(item)
    if (!known) {
      const all = texts(item).filter(Boolean)
      const lower = (some) => some.map((text) => text.toLowerCase())
      known = {
        ids: lower(all.filter((text) => ID.test(text))),
        text: lower(all.filter((text) => !ID.test(text))).join(' '),
      }
      searched.set(item, known)
    }
    return known.text.includes(word) || known.ids.some((id) => id.startsWith(word))
  }
}
