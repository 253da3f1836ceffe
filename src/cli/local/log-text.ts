import type { FlushableDestination, LogLine } from '../../base/logger.ts'
import { type Colour, type Paint, plainLine } from './terminal-text.ts'

const LEVEL_WIDTH = 5
const LEVEL_COLOURS: Readonly<Record<string, Colour>> = {
  trace: 'dim',
  debug: 'dim',
  warn: 'yellow',
  error: 'red',
  fatal: 'red',
}
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

/** A line of a log: one of this program, or plain text. */
export function readLogLine(text: string): LogLine | string {
  // Lines of the journal may begin with a priority.
  const plain = text.replace(/^<\d>/, '').trimEnd()
  if (!plain.startsWith('{')) return plain
  try {
    const line = JSON.parse(plain)
    const isOurs = typeof line.level === 'string' && typeof line.time === 'string'
    return isOurs ? { msg: '', ...line } : plain
  } catch {
    return plain
  }
}

/** `Nov 22 10:57:14 warn  tunnel waiting  reason=network`, in local time, without a line end. */
export function logText(line: LogLine | string, paint: Paint): string {
  if (typeof line === 'string') return plainLine(line)
  const { level, time, msg, ...details } = line
  const colour = LEVEL_COLOURS[level]
  const shownLevel = plainLine(level).padEnd(LEVEL_WIDTH)
  const fields = Object.entries(details).map(([name, value]) => `${name}=${fieldText(value)}`)
  return [
    paint('dim', timeText(time)),
    colour ? paint(colour, shownLevel) : shownLevel,
    paint('bold', plainLine(msg)),
    ...(fields.length > 0 ? [paint('dim', plainLine(fields.join(' ')))] : []),
  ].join(' ')
}

/** Formats the lines of the logger for a terminal. */
export function readableLines(inner: FlushableDestination, paint: Paint): FlushableDestination {
  return {
    write: (text) => inner.write(`${logText(readLogLine(text), paint)}\n`),
    flush: (done) => (inner.flush ? inner.flush(done) : done?.()),
  }
}

function timeText(time: string): string {
  const at = new Date(time)
  if (Number.isNaN(at.getTime())) return plainLine(time)
  const two = (number: number) => String(number).padStart(2, '0')
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')
  return `${MONTHS[at.getMonth()]} ${two(at.getDate())} ${clock}`
}

/** A value as text, in quotes if its end would be unclear. */
function fieldText(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value)
  return /^[^\s"={}]+$/.test(value) ? value : JSON.stringify(value)
}
