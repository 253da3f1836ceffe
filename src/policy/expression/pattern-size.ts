/** What a class such as `\pL` counts: its hundreds of ranges are read once, however often it is repeated. */
const CLASS_SIZE = 20

interface Group {
  /** Of what stands in it so far, and of the part of it that a repetition would repeat. */
  size: number
  last: number
}

/**
 * About how many instructions a pattern (RE2) would have, without compiling it: repetitions such as
 * `a{1000}` are written out. Sources that are none have some size, too.
 */
export function patternSize(source: string): number {
  const groups: Group[] = [{ size: 0, last: 0 }]
  let group = groups[0] as Group
  let classes = 0
  const add = (size: number) => {
    group.size += size
    group.last = size
  }
  for (const [token] of source.matchAll(TOKEN)) {
    if (token === '(') {
      group = { size: 0, last: 0 }
      groups.push(group)
    } else if (token === ')') {
      const { size } = groups.length > 1 ? (groups.pop() as Group) : group
      group = groups[groups.length - 1] as Group
      add(size)
    } else if (/^\{\d/.test(token)) {
      const times = Math.max(...token.slice(1, -1).split(',').map(Number))
      group.size += group.last * (times - 1)
      group.last *= times
    } else if (token.startsWith('\\Q')) {
      add(token.length)
    } else {
      // Within brackets there may be several.
      classes += token.match(/\\[pP]/g)?.length ?? 0
      add(1)
    }
  }
  return groups.reduce((sum, { size }) => sum + size, CLASS_SIZE * classes)
}

/** A quotation, an escape, a class in brackets, a repetition, or a character. */
const TOKEN = /\\Q(?:(?!\\E).)*|\\.|\[\^?\]?(?:\\.|\[:\w*:\]|[^\]\\])*\]?|\{\d+(?:,\d*)?\}|./gs
