/** Letters that may be wrong in a name for it to be taken for another. */
const MAX_WRONG = 2
/** A name this short is like too many others. */
const MIN_LENGTH = 4
const MAX_LENGTH = 64

/** The name that was meant, most likely: the one closest in writing, when one is close enough. */
export function nearest<T extends string>(written: string, names: Iterable<T>): T | undefined {
  if (written.length < MIN_LENGTH || written.length > MAX_LENGTH) return undefined
  let best: T | undefined
  let least = MAX_WRONG + 1
  for (const name of names) {
    if (Math.abs(name.length - written.length) >= least) continue
    const wrong = distance(written, name)
    if (wrong < least) {
      best = name
      least = wrong
    }
  }
  return best
}

/** How many letters have to be added, taken away or changed (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let at = 0; at < a.length; at += 1) {
    const next = [at + 1]
    for (let index = 0; index < b.length; index += 1) {
      const changed = (row[index] ?? 0) + (b[index] === a[at] ? 0 : 1)
      next.push(Math.min(changed, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}
