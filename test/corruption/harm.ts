import { readFileSync, rmSync, writeFileSync } from 'node:fs'

const PAGE = 4096

/** One way to damage the bytes of a file; undefined: the file goes. */
type Harm = (bytes: Buffer, random: () => number) => Buffer | undefined

const below = (random: () => number, limit: number) => Math.floor(random() * limit)

/** What storage does to files, and what people do to them. */
export const HARMS: Readonly<Record<string, Harm>> = {
  'one bit': flip(1),
  'some bits': flip(8),
  cut: (bytes, random) => bytes.subarray(0, below(random, bytes.length)),
  'cut at a block': (bytes, random) =>
    bytes.subarray(0, below(random, Math.ceil(bytes.length / PAGE)) * PAGE),
  zeroed: (bytes, random) => {
    const at = below(random, bytes.length)
    return bytes.fill(0, at, Math.min(bytes.length, at + 1 + below(random, 2 * PAGE)))
  },
  'block zeroed': (bytes, random) => {
    const at = below(random, Math.ceil(bytes.length / PAGE)) * PAGE
    return bytes.fill(0, at, Math.min(bytes.length, at + PAGE))
  },
  'blocks swapped': (bytes, random) => {
    const blocks = Math.floor(bytes.length / PAGE)
    const [a, b] = [below(random, blocks) * PAGE, below(random, blocks) * PAGE]
    const first = Buffer.from(bytes.subarray(a, a + PAGE))
    bytes.copy(bytes, a, b, b + PAGE)
    first.copy(bytes, b)
    return bytes
  },
  noise: (bytes, random) => {
    const at = below(random, bytes.length)
    const end = Math.min(bytes.length, at + 1 + below(random, 300))
    for (let place = at; place < end; place += 1) bytes[place] = below(random, 256)
    return bytes
  },
  deleted: () => undefined,
}

/** Damages a file in one of these ways; answers which. */
export function harm(path: string, random: () => number): string {
  const names = Object.keys(HARMS)
  const name = names[below(random, names.length)] ?? ''
  const bytes = HARMS[name]?.(readFileSync(path), random)
  if (bytes) writeFileSync(path, bytes)
  else rmSync(path)
  return name
}

function flip(most: number): Harm {
  return (bytes, random) => {
    for (let count = 1 + below(random, most); count > 0; count -= 1) {
      const at = below(random, bytes.length)
      bytes[at] = (bytes[at] ?? 0) ^ (1 << below(random, 8))
    }
    return bytes
  }
}
