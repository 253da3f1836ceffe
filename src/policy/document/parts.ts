/** Work in parts: after each it says about how many characters it was, so that others may go on. */
export type Parts<T> = Generator<number, T, undefined>

/** Does all parts at once. */
export function atOnce<T>(parts: Parts<T>): T {
  let part = parts.next()
  while (!part.done) part = parts.next()
  return part.value
}
