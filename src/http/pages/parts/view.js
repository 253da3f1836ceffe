import { element } from './element.js'

/** The head of every view; the heading takes the focus when the view opens. */
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

/** What a list shows that has nothing in it: why that is, and what to do next. */
export function emptyState(title, text, ...actions) {
  return element(
    'div',
    { class: 'empty' },
    element('h2', {}, title),
    element('p', {}, text),
    element('div', { class: 'row' }, actions),
  )
}

/** Stops what comes by itself, and lets it go on: for whoever reads. */
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
