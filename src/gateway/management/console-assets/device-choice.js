import { labelOf } from './device-states.js'
import { selectField, textField } from './dialog.js'
import { element } from './element.js'

const STATES = ['online', 'away', 'offline', 'never']
const DUPLICATE = 'duplicate'
const collator = new Intl.Collator('en', { numeric: true, sensitivity: 'base' })
const byName = (a, b) => collator.compare(a.name, b.name)
const RANKS = { offline: 0, away: 1, never: 2, online: 3 }

/** What lists can be sorted by. */
const ORDERS = {
  name: { label: 'Name', compare: byName },
  trouble: {
    label: 'Problems first',
    compare: (a, b) => RANKS[a.state] - RANKS[b.state] || byName(a, b),
  },
  since: {
    label: 'Last change',
    compare: (a, b) => (b.since ?? '').localeCompare(a.since ?? '') || byName(a, b),
  },
  traffic: { label: 'Traffic', compare: (a, b) => b.bytesPerS - a.bytesPerS || byName(a, b) },
}

/**
 * The form above the devices: what is looked for, in which state, with which tag, in which order.
 * @param {() => void} onChange
 */
export function deviceChoice(onChange) {
  const search = textField({
    name: 'search',
    label: 'Search',
    placeholder: 'name, address, tag',
    type: 'search',
  })
  const state = selectField({
    name: 'state',
    label: 'State',
    options: [
      ['', 'All'],
      ...STATES.map((it) => [it, labelOf(it)]),
      [DUPLICATE, 'Connected twice'],
    ],
  })
  const tag = selectField({ name: 'tag', label: 'Tag', options: [['', 'All']] })
  const order = selectField({
    name: 'order',
    label: 'Sort by',
    options: Object.entries(ORDERS).map(([key, { label }]) => [key, label]),
  })
  const form = element(
    'form',
    {
      class: 'choice',
      role: 'search',
      'aria-label': 'Filter devices',
      oninput: onChange,
      onsubmit: (event) => event.preventDefault(),
    },
    search,
    state,
    tag,
    order,
  )
  const tagSelect = tag.querySelector('select')
  let shownTags
  return { node: form, choose, offerTags }

  /** Those of `devices` that are asked for, in the order that is. */
  function choose(devices) {
    const asked = Object.fromEntries(new FormData(form))
    const words = String(asked.search).toLowerCase().split(/\s+/).filter(Boolean)
    const isChosen = (device) =>
      (asked.state === '' ||
        (asked.state === DUPLICATE ? device.is_duplicate : device.state === asked.state)) &&
      (asked.tag === '' || device.tags.includes(asked.tag)) &&
      words.every((word) => textOf(device).includes(word))
    return devices.filter(isChosen).sort(ORDERS[String(asked.order)].compare)
  }

  /** Keeps the tags that can be chosen true; what is chosen stays. */
  function offerTags(devices) {
    const counts = new Map()
    for (const { tags } of devices) for (const it of tags) counts.set(it, (counts.get(it) ?? 0) + 1)
    const names = [...counts.keys()].sort(collator.compare)
    const text = names.map((name) => `${name} ${counts.get(name)}`).join()
    if (text === shownTags) return
    shownTags = text
    const chosen = tagSelect.value
    tagSelect.replaceChildren(
      element('option', { value: '' }, 'All'),
      ...names.map((name) => element('option', { value: name }, `${name} (${counts.get(name)})`)),
    )
    tagSelect.value = counts.has(chosen) ? chosen : ''
    tag.hidden = names.length === 0
  }
}

/** What the search looks into; kept with the device, which is another object when it changes. */
function textOf(device) {
  device.text ??= [device.name, device.ip, device.version, ...device.tags].join(' ').toLowerCase()
  return device.text
}
