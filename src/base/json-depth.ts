/**
 * Whether a JSON value is nested deeper than `limit`. Level by level, because a recursion could be
 * driven out of its stack, as that of `JSON.stringify` is.
 */
export function isDeeper(value: unknown, limit: number): boolean {
  let level = [value]
  for (let depth = 0; depth <= limit; depth += 1) {
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? Object.values(item) : [],
    )
    if (level.length === 0) return false
  }
  return true
}
