/** Appends a step to a JSON pointer (RFC 6901 3). */
export function child(pointer: string, key: string | number): string {
  return `${pointer}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`
}

/** The steps of a JSON pointer. */
export function stepsOf(pointer: string): string[] {
  const steps = pointer.split('/').slice(1)
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}

/** True when a pointer leads to one of others, or into what they lead to. */
export function isWithin(pointer: string, others: Iterable<string>): boolean {
  for (const other of others) {
    if (pointer === other || pointer.startsWith(`${other}/`)) return true
  }
  return false
}
