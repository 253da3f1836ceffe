import { cardHead } from './card.js'
import { element } from './element.js'
import { formatBytes } from './format.js'

/** An exchange with its heads and bodies. */
export function exchangeDetails(exchange, { onReplay }) {
  const { method, target, request, response, status, error, state } = exchange
  const canReplay = state !== 'switched' && state !== 'open' && request.body.is_whole
  return element(
    'div',
    { class: 'card' },
    cardHead(`${method} ${target}`, {
      actions: canReplay
        ? [element('button', { type: 'button', class: 'button', onclick: onReplay }, 'Send again')]
        : [],
    }),
    error && element('p', { class: 'notice notice-error' }, error),
    message('Request', `${method} ${target} HTTP/${request.http_version}`, request),
    response &&
      message('Response', `HTTP/${response.http_version} ${status} ${response.reason}`, response),
  )
}

function message(title, line, { fields, body }) {
  return [
    element('h3', {}, title),
    element(
      'pre',
      { class: 'head', tabindex: '0', 'aria-label': `${title} headers` },
      [line, ...fields.map(({ name, value }) => `${name}: ${value}`)].join('\n'),
    ),
    bodyOf(title, body),
  ]
}

function bodyOf(title, { bytes, text, base64, is_whole: isWhole }) {
  if (bytes === 0) return element('p', { class: 'hint' }, 'No body.')
  const size = isWhole
    ? formatBytes(bytes)
    : `Only the beginning of ${formatBytes(bytes)} was recorded.`
  return [
    element('p', { class: 'hint' }, text === null ? `${size}, in base64:` : size),
    element(
      'pre',
      { class: 'body', tabindex: '0', 'aria-label': `${title} body` },
      text === null ? base64 : readable(text),
    ),
  ]
}

function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}
