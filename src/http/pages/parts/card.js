import { element } from './element.js'

/**
 * The head of a card: its name, what state it is in, and what can be done to it.
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

/** A word about a state; `tone` is good, wait, bad or plain, and never says it alone. */
export function badge(text, tone = 'plain') {
  return element('span', { class: `badge badge-${tone}` }, text)
}

/** Pairs of a name and a value; pairs without a value are left out. */
export function facts(...pairs) {
  return element(
    'dl',
    { class: 'facts' },
    pairs
      .filter(([, value]) => value !== undefined && value !== null && value !== '')
      .map(([name, value]) =>
        element('div', {}, element('dt', {}, name), element('dd', {}, value)),
      ),
  )
}

/** A button that changes one thing; `what` is read to those who do not see where it stands. */
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
