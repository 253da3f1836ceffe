/** Default for `maxWrong`. */
const MAX_WRONG = 2
/** Shorter names are similar to too many others. */
const MIN_LENGTH = 4
const MAX_LENGTH = 64

/**
 * Returns the most likely intended name. It is the only name that begins with `written`, or else the closest
 * in spelling. `maxWrong` limits the letters added, left out or changed.
 */
export function nearest<T extends string>(
  written: string,
  names: Iterable<T>,
  maxWrong = MAX_WRONG,
): T | undefined {
  if (written.length < MIN_LENGTH || written.length > MAX_LENGTH) return undefined
  const all = Array.from(names)
  const begun = all.filter((name) => name.startsWith(written))
  if (begun.length === 1) return begun[0]
  let best: T | undefined
  let least = maxWrong + 1
  for (const name of all) {
    if (Math.abs(name.length - written.length) >= least) continue
    const wrong = distance(written, name)
    if (wrong < least) {
      best = name
      least = wrong
    }
  }
  return best
}

/** Returns at most `most` names, the closest in spelling first. */
export function nearestFirst(written: string, names: Iterable<string>, most: number): string[] {
  const low = written.slice(0, MAX_LENGTH).toLowerCase()
  return Array.from(names, (name) => ({ name, wrong: distance(low, name.toLowerCase()) }))
    .sort((a, b) => a.wrong - b.wrong)
    .slice(0, most)
    .map(({ name }) => name)
}

/** Returns the message for an unknown field, with the field that was probably meant. */
export function noField(written: string, owner: string, names: readonly string[]): string {
  const meant = nearest(written, names)
  if (meant !== undefined) return `${written} is not a field of ${owner}. Did you mean ${meant}?`
  if (names.length === 0) return `${written} is not a field of ${owner}, which has no fields.`
  const last = names.slice(-1).join()
  const list = names.length > 1 ? `${names.slice(0, -1).join(', ')} and ${last}` : last
  return `${written} is not a field of ${owner}. Known fields: ${list}.`
}

/** Returns the Levenshtein distance: letters to add, remove or change. */
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
