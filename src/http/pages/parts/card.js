import { element } from './element.js'

/**
 * Returns the head of a card: title, state and actions.
 * @param {string} title
 * @param {{ badge?: Node | false, actions?: Node[] }} [options]
 */
export function cardHead(title, { badge, actions = [] } = {}) {
  return element(
    'div',
    { class: 'card-head' },
    element('div', { class: 'card-title' }, element('h2', { tabindex: '-1' }, title), badge),
    element('div', { class: 'row' }, actions),
  )
}

/** Returns a label for a state. `tone` is good, wait, bad or plain. The text must not depend on it. */
export function badge(text, tone = 'plain') {
  return element('span', { class: `badge badge-${tone}` }, text)
}

/** Returns a list of names and values. Pairs without a value are left out. */
export function facts(...pairs) {
  return element(
    'dl',
    { class: 'facts' },
    pairs
      .filter(
        ([, value]) => value !== undefined && value !== null && value !== false && value !== '',
      )
      .map(([name, value]) =>
        element('div', {}, element('dt', {}, name), element('dd', {}, value)),
      ),
  )
}

/** Returns a button for a change. `what` names the object for screen readers. */
export function actionButton(label, what, onclick, isDangerous = false) {
  return element(
    'button',
    {
      type: 'button',
      class: `button button-change ${isDangerous ? 'button-danger-quiet' : ''}`,
      'aria-label': `${label} ${what}`,
      onclick,
    },
    label,
  )
}
