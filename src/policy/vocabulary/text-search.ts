import type { Evaluation } from '../expression/evaluation.ts'

/** In a shorter text no part takes long to find. */
const SHORT_TEXT = 48
/** To look whether a part begins at a place, and for each character that may have to be compared. */
const PLACE_STEPS = 2
const COMPARE_STEPS = 0.005

/**
 * Where a part begins in a text, at `from` or later; -1 when nowhere. Each place with its first
 * character is paid for before it is looked at: how many there are decides how long a search takes.
 */
export function find(evaluation: Evaluation, text: string, part: string, from = 0): number {
  if (part.length < 2 || text.length <= SHORT_TEXT) return text.indexOf(part, from)
  const first = part.charAt(0)
  const last = text.length - part.length
  const steps = PLACE_STEPS + COMPARE_STEPS * part.length
  let at = text.indexOf(first, from)
  while (at !== -1 && at <= last) {
    evaluation.spend(steps)
    if (isAt(text, part, at)) return at
    at = text.indexOf(first, at + 1)
  }
  return -1
}

/** `startsWith` goes from character to character, where pieces are compared as a whole. */
export function isAt(text: string, part: string, at: number): boolean {
  return text.slice(at, at + part.length) === part
}

/** The same from the end: at `from` or earlier. */
export function findLast(evaluation: Evaluation, text: string, part: string, from: number): number {
  if (part.length < 2 || text.length <= SHORT_TEXT) return text.lastIndexOf(part, from)
  const first = part.charAt(0)
  const steps = PLACE_STEPS + COMPARE_STEPS * part.length
  let at = text.length - part.length
  if (from < at) at = from
  while (at >= 0) {
    at = text.lastIndexOf(first, at)
    if (at === -1) return -1
    evaluation.spend(steps)
    if (isAt(text, part, at)) return at
    at -= 1
  }
  return -1
}

/** The pieces of a text between separators, the first `most` of them. */
export function piecesOf(
  evaluation: Evaluation,
  text: string,
  separator: string,
  most: number,
): string[] {
  if (separator.length < 2 || text.length <= SHORT_TEXT) return text.split(separator, most)
  const pieces: string[] = []
  let from = 0
  while (pieces.length < most) {
    const at = find(evaluation, text, separator, from)
    if (at === -1) {
      pieces.push(text.slice(from))
      break
    }
    pieces.push(text.slice(from, at))
    from = at + separator.length
  }
  return pieces
}
