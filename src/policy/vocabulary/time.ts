import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Evaluation } from '../expression/evaluation.ts'
import {
  checked,
  type ExpressionFunction,
  methodWithin,
} from '../expression/expression-function.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { type Node, textOf } from '../expression/expression-tree.ts'
import type { MessageValue } from '../expression/value.ts'

const DAY_MS = 86_400_000
/** Steps to format a time in a named zone. */
const SHOW_STEPS = 25
/** Characters of the name of a zone. */
const MAX_ZONE = 64
const OFFSET = /^([+-]?)(\d\d):(\d\d)$/

const GETTERS: Readonly<Record<string, (date: Date) => number>> = {
  getFullYear: (date) => date.getUTCFullYear(),
  getMonth: (date) => date.getUTCMonth(),
  getDate: (date) => date.getUTCDate(),
  getDayOfMonth: (date) => date.getUTCDate() - 1,
  getDayOfWeek: (date) => date.getUTCDay(),
  getDayOfYear: (date) => Math.floor((date.getTime() - Date.UTC(date.getUTCFullYear())) / DAY_MS),
  getHours: (date) => date.getUTCHours(),
  getMinutes: (date) => date.getUTCMinutes(),
  getSeconds: (date) => date.getUTCSeconds(),
  getMilliseconds: (date) => date.getUTCMilliseconds(),
}

/**
 * Parts of timestamps in UTC or in a zone: an offset such as `02:00` or `-05:30`, or a name such as
 * `Europe/Berlin`. They replace the functions of the library, which depend on the machine's zone and look the
 * zone up each time.
 */
export const TIME_FUNCTIONS: readonly ExpressionFunction[] = Object.entries(GETTERS).flatMap(
  ([name, get]) => [
    methodWithin(name, ['timestamp'], 'int', (_, time) => BigInt(get(dateOf(time)))),
    checked(
      methodWithin(name, ['timestamp', 'string'], 'int', (evaluation, time, zone) =>
        BigInt(get(inZone(evaluation, dateOf(time), zone))),
      ),
      checkZone,
    ),
  ],
)

function checkZone([, zone]: readonly Node[]): string | undefined {
  const name = textOf(zone)
  if (name === undefined || OFFSET.test(name) || ZONES.get(name)) return undefined
  return `${name} is not a time zone`
}

/** Whether there is a zone with that name: to find out takes most of a millisecond. */
const ZONES = new BoundedCache((timeZone) => {
  try {
    new Intl.DateTimeFormat('sv-SE', { timeZone })
    return true
  } catch {
    return false
  }
})

function dateOf({ message: { seconds, nanos } }: MessageValue): Date {
  return new Date(Number(seconds) * 1_000 + Math.floor(nanos / 1e6))
}

/** A date whose UTC parts equal the local time in the zone. */
function inZone(evaluation: Evaluation, date: Date, zone: string): Date {
  const [, sign, hours, minutes] = OFFSET.exec(zone) ?? []
  if (hours !== undefined) {
    const offsetMs = (Number(hours) * 60 + Number(minutes)) * 60_000
    return new Date(date.getTime() + (sign === '-' ? -offsetMs : offsetMs))
  }
  // The Swedish format `2024-07-13 02:10:16` is nearly that of Date.
  const shown = formatterOf(evaluation, zone).format(date)
  return new Date(Date.parse(`${shown.replace(' ', 'T')}Z`) + date.getUTCMilliseconds())
}

function formatterOf(evaluation: Evaluation, zone: string): Intl.DateTimeFormat {
  evaluation.spend(SHOW_STEPS)
  if (zone.length > MAX_ZONE) throw new EvaluationError('the string is not a time zone')
  try {
    return evaluation.zones.get(zone)
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw new EvaluationError(`${zone} is not a time zone`)
  }
}
