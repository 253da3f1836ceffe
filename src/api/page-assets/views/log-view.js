import { ask } from '../api.js'
import { selectField, textField } from '../dialog.js'
import { element, fill } from '../element.js'
import { poll } from '../poll.js'
import { pauseButton, viewHead } from '../view.js'

const REFRESH_MS = 2_000
/** Lines that are kept; the device has the whole log. */
const MAX_LINES = 1_000
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal']
const OWN = new Set(['level', 'time', 'msg'])
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })

/** The end of the agent's log, as it grows. */
export function logView() {
  const problem = element('div', {})
  const rows = element('div', {
    class: 'log',
    tabindex: '0',
    role: 'log',
    'aria-label': 'Latest log lines',
    'aria-live': 'off',
  })
  const none = element('p', { class: 'hint' }, 'No matching lines.')
  const live = poll({ everyMs: () => REFRESH_MS, problem, look })
  const choice = element(
    'form',
    {
      class: 'choice',
      'aria-label': 'Filter',
      oninput: () => show(),
      onsubmit: (event) => event.preventDefault(),
    },
    selectField({
      name: 'level',
      label: 'Level',
      options: [
        ['info', 'All'],
        ['warn', 'Warnings and errors'],
        ['error', 'Errors'],
      ],
    }),
    textField({ name: 'text', label: 'Contains', placeholder: 'tunnel online' }),
  )
  const node = element(
    'div',
    {},
    viewHead('Log', 'Latest log lines, updated live.', pauseButton(live)),
    choice,
    problem,
    rows,
    none,
  )
  let lines = []
  return { node, open: live.open, close: live.close }

  async function look(isBackground) {
    const after = lines.at(-1)?.number ?? 0
    const query = `after=${after}&limit=${MAX_LINES}`
    const answer = await ask('GET', `api/log?${query}`, { isBackground })
    return () => {
      // An agent that was started again counts from 1.
      if (answer.last < after) lines = []
      if (answer.lines.length === 0) return
      lines = [...lines, ...answer.lines].slice(-MAX_LINES)
      show()
    }
  }

  function show() {
    const { level, text } = Object.fromEntries(new FormData(choice))
    const least = LEVELS.indexOf(String(level))
    const wanted = String(text).trim().toLowerCase()
    const isAtEnd =
      rows.childElementCount === 0 || rows.scrollHeight - rows.scrollTop - rows.clientHeight < 40
    const fitting = lines.filter(
      ({ line }) =>
        (least <= 2 || LEVELS.indexOf(line.level) >= least) &&
        (wanted === '' || JSON.stringify(line).toLowerCase().includes(wanted)),
    )
    fill(rows, fitting.map(logRow))
    rows.hidden = fitting.length === 0
    none.hidden = fitting.length > 0
    // Who reads further up is left there.
    if (isAtEnd) rows.scrollTop = rows.scrollHeight
  }
}

function logRow({ line }) {
  const { level, time, msg } = line
  const details = Object.entries(line).filter(([name]) => !OWN.has(name))
  return element(
    'div',
    { class: `log-line log-${level}` },
    element('time', { datetime: time }, clock.format(new Date(time))),
    element('span', { class: 'log-level' }, level),
    element(
      'span',
      { class: 'log-text' },
      element('span', { class: 'log-message' }, msg),
      details.map(([name, value]) =>
        element('span', { class: 'log-detail' }, ` ${name}=${shown(value)}`),
      ),
    ),
  )
}

function shown(value) {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
