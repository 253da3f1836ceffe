import { element } from './element.js'

/** Returns the head of a view. Its heading gets the focus when the view opens. */
export function viewHead(title, intro, ...actions) {
  return element(
    'div',
    { class: 'view-head' },
    element(
      'div',
      {},
      element('h1', { tabindex: '-1' }, title),
      element('p', { class: 'intro' }, intro),
    ),
    element('div', { class: 'view-actions' }, actions),
  )
}

/** Returns the content of an empty list: the reason and the next step. */
export function emptyState(title, text, ...actions) {
  return element(
    'div',
    { class: 'empty' },
    element('h2', {}, title),
    element('p', {}, text),
    element('div', { class: 'row' }, actions),
  )
}

/** Returns a button that pauses and resumes live updates. */
export function pauseButton(live) {
  const button = element(
    'button',
    { type: 'button', class: 'button', 'aria-pressed': 'false', onclick: toggle },
    'Pause',
  )
  return button

  function toggle() {
    const isToPause = button.getAttribute('aria-pressed') === 'false'
    button.setAttribute('aria-pressed', String(isToPause))
    return live.pause(isToPause)
  }
}
