import { element } from './element.js'

/**
 * The open part of a line: what can be done with the item, then what is known about it.
 * @param {Node[]} actions
 * @param {...any} content
 */
export function itemDetails(actions, ...content) {
  return element(
    'div',
    {},
    actions.length > 0 && element('div', { class: 'row item-actions' }, actions),
    content,
  )
}
