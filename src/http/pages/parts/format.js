const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB']
/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const SPANS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
]
const number = new Intl.NumberFormat('en', { maximumFractionDigits: 1 })
const date = new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeStyle: 'short' })
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' })

/** `1,234.5` */
export function formatNumber(value) {
  return number.format(value)
}

/** `12.3 kB`, in steps of 1,000. */
export function formatBytes(bytes) {
  let value = bytes
  let unit = 0
  while (value >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1_000
    unit += 1
  }
  // A rate may have fractions of a byte.
  return `${number.format(unit === 0 ? Math.round(value) : value)} ${BYTE_UNITS[unit]}`
}

/** `Nov 20, 2026, 5:04 PM`, in the time zone of the reader. */
export function formatDate(iso) {
  return date.format(new Date(iso))
}

/** `3 minutes`, the time since. */
export function formatSpan(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1_000
  for (const [unit, length] of SPANS) {
    if (seconds >= length) return formatCount(Math.round(seconds / length), unit)
  }
  return 'less than a minute'
}

/** `1 device`, `1,000 devices` */
export function formatCount(count, noun) {
  return `${formatNumber(count)} ${noun}${count === 1 ? '' : 's'}`
}

/** `3 minutes ago`, `in 59 days`. */
export function formatDistance(iso) {
  const seconds = (Date.parse(iso) - Date.now()) / 1_000
  for (const [unit, length] of SPANS) {
    if (Math.abs(seconds) >= length) return relative.format(Math.round(seconds / length), unit)
  }
  return seconds > 0 ? 'in a moment' : 'just now'
}
