/** Times of a day without messages, such as 22:00 to 07:00. */
export interface QuietTimes {
  /** `hh:mm`, first quiet minute. */
  readonly from: string
  /** `hh:mm`, first minute after the quiet times. Before `from`: on the next day. */
  readonly to: string
}

/** Whether this minute is quiet, by the clocks of the time zone. */
export function isQuiet(quiet: QuietTimes | null, timeZone: string, at: number): boolean {
  if (!quiet) return false
  const now = localTime(at, timeZone).slice(-5)
  const { from, to } = quiet
  return from < to ? from <= now && now < to : now >= from || now < to
}

/** `2030-01-01 07:00`, by the clocks of the time zone. */
export function localTime(at: number, timeZone: string): string {
  const parts = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
  }).formatToParts(at)
  const of = (type: Intl.DateTimeFormatPartTypes) =>
    parts.find((part) => part.type === type)?.value ?? ''
  return `${of('year')}-${of('month')}-${of('day')} ${of('hour')}:${of('minute')}`
}

/** Whether the name is a time zone, such as `Europe/Berlin`. */
export function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }) !== undefined
  } catch {
    return false
  }
}
