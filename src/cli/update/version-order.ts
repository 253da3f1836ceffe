const FORM = /^(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?$/

/** Positive when `a` is newer. Throws when one is no version, such as `1.2.0` or `1.2.0-rc.1`. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [partsOf(a), partsOf(b)]
  for (const [index, number] of left.numbers.entries()) {
    const difference = number - (right.numbers[index] ?? 0)
    if (difference !== 0) return difference
  }
  // What leads up to a version is older than it.
  if (left.before === right.before) return 0
  if (left.before === '') return 1
  if (right.before === '') return -1
  return left.before.localeCompare(right.before, 'en', { numeric: true })
}

export function isVersion(text: string): boolean {
  return FORM.test(text)
}

function partsOf(version: string): { numbers: number[]; before: string } {
  const [, major, minor, patch, before = ''] = FORM.exec(version) ?? []
  if (major === undefined) throw new Error(`${version} is not a version`)
  return { numbers: [major, minor, patch].map(Number), before }
}
