import { element, setText } from './element.js'

/**
 * Returns a list of named values that can be updated.
 * @param {string} className
 * @param {string[]} names
 */
export function figures(className, names) {
  const cells = new Map(names.map((name) => [name, element('dd', {})]))
  const node = element(
    'dl',
    { class: className },
    [...cells].map(([name, cell]) => element('div', {}, element('dt', {}, name), cell)),
  )
  return {
    node,
    show: (values) => {
      for (const [name, value] of Object.entries(values)) setText(cells.get(name), value)
    },
    mark: (name, isMarked) => cells.get(name).classList.toggle('is-marked', isMarked),
  }
}
