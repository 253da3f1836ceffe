import { labelOf } from './device-states.js'
import { collator, listFilter } from './list-filter.js'

const STATES = ['online', 'away', 'offline', 'never']
const DUPLICATE = 'duplicate'
const RANKS = { offline: 0, away: 1, never: 2, online: 3 }
const byName = (a, b) => collator.compare(a.name, b.name)

/** The form above the devices. */
export function deviceFilter(onChange) {
  return listFilter({
    label: 'Filter devices',
    placeholder: 'name, address, tag',
    texts: ({ name, ip, version, tags }) => [name, ip, version, ...tags],
    selections: [
      {
        name: 'state',
        label: 'State',
        options: [
          ['', 'All'],
          ...STATES.map((it) => [it, labelOf(it)]),
          [DUPLICATE, 'Connected twice'],
        ],
        matches: (device, value) =>
          value === DUPLICATE ? device.is_duplicate : device.state === value,
      },
      { name: 'tag', label: 'Tag', of: ({ tags }) => tags },
    ],
    orders: {
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
    },
    onChange,
  })
}
