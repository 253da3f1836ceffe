import { relative } from 'node:path'

export type Colour = 'green' | 'yellow' | 'red' | 'dim' | 'bold'

const CODES: Readonly<Record<Colour, number>> = { green: 32, yellow: 33, red: 31, dim: 2, bold: 1 }
/** Control characters, among them those that move the cursor. Text of a service is untrusted. */
const CONTROL = /[\p{Cc}\p{Cf}]/gu

/** Colours text on a terminal; elsewhere the text stays plain (no-color.org). */
export type Paint = (colour: Colour, text: string) => string

export function paintFor(
  stream: NodeJS.WritableStream,
  environment: Readonly<Record<string, string | undefined>>,
): Paint {
  const isShown = isTerminal(stream) && !environment.NO_COLOR && environment.TERM !== 'dumb'
  return (colour, text) => (isShown ? `\x1b[${CODES[colour]}m${text}\x1b[0m` : text)
}

export function isTerminal(stream: NodeJS.WritableStream): boolean {
  return 'isTTY' in stream && stream.isTTY === true
}

/** One line without anything that a terminal would obey. */
export const plainLine = (text: string): string => text.replaceAll(CONTROL, ' ')

/** A path as one would type it in the current folder. */
export function shownPath(path: string): string {
  const short = relative('.', path)
  return short === '' || short.startsWith('..') ? path : short
}

export interface Cell {
  readonly text: string
  readonly colour?: Colour
}

/** Rows in columns that are as wide as they have to be; the first row is the heading. */
export function tableText(rows: readonly (readonly Cell[])[], paint: Paint): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => plainLine(row[column]?.text ?? '').length)),
  )
  const line = (row: readonly Cell[]) =>
    row
      .map(({ text, colour }, column) => {
        const plain = plainLine(text)
        const padding = ' '.repeat((widths[column] ?? 0) - plain.length)
        return `${colour ? paint(colour, plain) : plain}${padding}`
      })
      .join('  ')
      .trimEnd()
  return rows.map((row) => `${line(row)}\n`).join('')
}

const UNITS: readonly (readonly [seconds: number, name: string])[] = [
  [86_400, 'd'],
  [3_600, 'h'],
  [60, 'min'],
  [1, 's'],
]

/** How long ago, in its largest unit: `3 h`. */
export function ageText(since: string, now: number): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(since)) / 1_000))
  const [size, name] = UNITS.find(([unit]) => seconds >= unit) ?? [1, 's']
  return `${Math.floor(seconds / size)} ${name}`
}
