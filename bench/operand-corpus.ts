import type { ListValue, MapValue, ValueInput } from '../src/policy/expression/value.ts'
import { listOf, mapOf } from '../src/policy/expression/value.ts'

/** Draws a number below its argument. */
export type Draw = (below: number) => number

/** One piece, as texts of requests are, and not a rope. */
const flat = (text: string) => Buffer.from(text).toString()
const fill = (piece: string, size: number) => flat(piece.repeat(Math.ceil(size / piece.length)))
/** Distinct pieces, as many as come to the size. */
const numbered = (piece: (index: number) => string, size: number, join = '') => {
  const pieces: string[] = []
  for (let length = 0, index = 0; length < size; index += 1) {
    const next = piece(index)
    pieces.push(next)
    length += next.length + join.length
  }
  return flat(pieces.join(join))
}

/** Texts that some function takes long for, by their size in characters. */
const TEXTS: readonly ((size: number) => string)[] = [
  ...['a', 'aB', 'A', '\u0100', '\u{1f600}', '\u{1f600}a', ' ', '\u3000', '\ud800', '7', '%41'].map(
    (piece) => (size: number) => fill(piece, size),
  ),
  ...[
    '%C3%A9',
    '%',
    '"',
    '\\',
    '\u0001',
    '\n',
    ',',
    '=&',
    'a&',
    'a=b&',
    '+',
    '../',
    'a.',
    '1h',
  ].map((piece) => (size: number) => fill(piece, size)),
  (size) => `${fill('a', size)}b`,
  (size) => `b${fill('a', size)}`,
  (size) => `${fill(' ', size)}\u0100`,
  (size) => `a${fill(' ', size)}b`,
  (size) => `0.${fill('7', size)}`,
  (size) => `-${fill('9', size)}`,
  (size) => `2024-07-13T00:10:16.${fill('9', size)}Z`,
  (size) => `${fill('0', size)}s`,
  (size) => fill('1h1m1s1ms', size),
  (size) => `https://h/${fill('a', size)}`,
  (size) => `https://h/${fill('a/../', size)}`,
  (size) => `https://h/?${fill('a&', size)}`,
  (size) => `https://h/?${numbered((n) => `k${n}=v&`, size)}`,
  (size) => `https://h/${fill('\u00e9', size)}`,
  (size) => `https://h/?${fill('\u00e9', size)}`,
  (size) => `https://h/#${fill('\u00e9', size)}`,
  (size) => `https://${fill('\u00e9', size)}`,
  (size) => `https://${fill('%C3%A9', size)}`,
  (size) => `https://${fill('\u00e9.', size)}`,
  (size) => `https://${fill('xn--4ca.', size)}`,
  (size) => `https://${fill('a.', size)}`,
  (size) => `https://${fill('1.', size)}`,
  (size) => `https://${fill('@', size)}h/`,
  (size) => `foo:${fill('\u00e9', size)}`,
  (size) => numbered((n) => `k${n}=v&`, size),
  (size) => numbered((n) => `k${n}=%41&`, size),
  (size) => `[${fill('1,', size)}1]`,
  (size) => `[${fill('[],', size)}1]`,
  (size) => `[${fill('{},', size)}1]`,
  (size) => `[${fill('{"a":1},', size)}1]`,
  (size) => `[${fill('1.5e-7,', size)}1]`,
  (size) => `[${fill('1.7976931348623157e308,', size)}1]`,
  (size) => `[${fill('"",', size)}1]`,
  (size) => `[${fill('"\\u00e9",', size)}1]`,
  (size) => `${fill('[', size / 2)}${fill(']', size / 2)}`,
  (size) => `${fill('{"a":', size)}1${fill('}', size / 5)}`,
  (size) => `{${numbered((n) => `"${n.toString(36)}":1`, size, ',')}}`,
  (size) => `{${numbered((n) => `"${n}":1`, size, ',')}}`,
  (size) => `{${numbered((n) => `"${n * 7_919}":1`, size, ',')}}`,
  (size) => `{${numbered((n) => `"k${n}":{}`, size, ',')}}`,
  (size) => `[${numbered((n) => `{"k${n}":1}`, size, ',')}]`,
  (size) => `[${numbered((n) => `{"k${n}":1,"l${n}":2}`, size, ',')}]`,
  (size) => `[${numbered((n) => `"${n.toString(36)}"`, size, ',')}]`,
  (size) => `{${numbered((n) => `"k${n}":1`, size, ',')}`,
  (size) => `"${fill('\\u0041', size)}"`,
  (size) => `"${fill('\\n', size)}"`,
  (size) => Buffer.alloc(Math.ceil(size / 4) * 3, 'é').toString('base64'),
  (size) =>
    Buffer.alloc(Math.ceil(size / 4) * 3, 1)
      .toString('base64')
      .replace(/..../g, '$&\n'),
  (size) => `${Buffer.alloc(Math.ceil(size / 4) * 3, 1).toString('base64')}!`,
  (size) => numbered((n) => `word${n}`, size, ' '),
  (size) => numbered((n) => `${n}`, size, ','),
]

/** Texts that mean something to a function whatever their size is. */
const SHORT_TEXTS = [
  ...[
    '',
    'a',
    'b',
    ' ',
    ',',
    'ab',
    'aab',
    'baa',
    '\u0100',
    '\u{1f600}',
    '7',
    '42',
    'true',
    '1.5e300',
  ],
  ...['2024-07-13T00:10:16Z', '1h30m', '-05:30', 'Europe/Berlin', 'hex', 'base64', '1e', '0x1f'],
  ...[
    '203.0.113.0/24',
    '2001:db8::/32',
    '2001:db8::1',
    '::ffff:203.0.113.9',
    '203.0.113.9',
    '999.1.1.1',
    ':::::',
  ],
  ...['%s', '%d', '%x', '%.2f', '%e', '%b', '%o', '%X', '%s %s', '%.9f', '%f%f%f%f'],
  ...['[ab]*c', '(?i)k', 'a*b', '(a|aa)*c', '(?:a?){20}b', '.*.*=.*', '[^a]', '(?i)badbot|crawler'],
  ...['https://h/', 'a=b', '{"a":1}', 'null'],
]

const SIZES = [16, 256, 2_048, 16_384, 65_536, 524_288]
const LENGTHS = [2, 64, 1_000, 8_000]

const cache = new Map<string, unknown>()
function kept<T>(key: string, make: () => T): T {
  const known = cache.get(key)
  if (known !== undefined) return known as T
  const made = make()
  cache.set(key, made)
  return made
}

function drawText(draw: Draw): string {
  if (draw(5) === 0) return SHORT_TEXTS[draw(SHORT_TEXTS.length)] as string
  const [kind, size] = [draw(TEXTS.length), draw(SIZES.length)]
  return kept(`text ${kind} ${size}`, () => TEXTS[kind]?.(SIZES[size] ?? 1) ?? '')
}

/** A text that functions look for in another one. */
export function drawPart(text: string, draw: Draw): string {
  const half = text.slice(0, Math.floor(text.length / 2 ** (1 + draw(12))))
  switch (draw(6)) {
    case 0:
      return flat(`b${half}`)
    case 1:
      return flat(`${half}b`)
    case 2:
      return flat(half)
    case 3:
      return text.slice(0, 1 + draw(3))
    case 4:
      return flat(`${half.slice(0, half.length / 2)}b${half.slice(half.length / 2)}`)
    default:
      return drawText(draw)
  }
}

type Item = (index: number) => ValueInput
const ITEMS: readonly Item[] = [
  (n) => BigInt(n),
  (n) => BigInt((n * 7_919) % 8_009) * 1_000_000_007n * 1_000_003n,
  (n) => -BigInt(n),
  (n) => n + 0.5,
  () => 'a',
  (n) => `${n}`,
  (n) => `item ${(n * 7_919) % 8_009}`,
  (n) => n % 2 === 0,
  () => null,
  (n) => listOf([BigInt(n)]),
  () => listOf([]),
  () => listOf([listOf([])]),
  () => mapOf(new Map()),
  (n) => mapOf(new Map([['a', BigInt(n)]])),
  (n) => mapOf(new Map([[`k${n}`, 'a']])),
  (n) => Buffer.from(`item ${n}`),
  (n) => (n % 2 === 0 ? BigInt(n) : n + 0.5),
  (n) => (n % 2 === 0 ? 'a' : 1n),
  () => Number.NaN,
  () => 5e-324,
]
/** Texts that differ at their end. */
const LONG_ITEMS = [100, 1_000, 8_000].flatMap((length): Item[] => {
  const start = fill('a', length)
  return [
    (n) => flat(`${start}${(n * 7_919) % 8_009}`),
    (n) => flat(`${start}\u0100${(n * 7_919) % 8_009}`),
    () => start,
    (n) => flat(fill('%', length) + n),
    (n) => flat(fill('\u0001', length) + n),
    (n) => Buffer.from(`${start}${n}`),
    () => listOf(Array(length).fill(1n)),
  ]
})
const ALL_ITEMS = [...ITEMS, ...LONG_ITEMS]

/** Lists of several kinds and lengths; long items in short lists, for vars hold no more. */
function drawList(draw: Draw): ListValue {
  const [kind, at] = [draw(ALL_ITEMS.length), draw(LENGTHS.length)]
  return kept(`list ${kind} ${at}`, () => {
    const perItem =
      kind < ITEMS.length ? 1 : [100, 1_000, 8_000][Math.floor((kind - ITEMS.length) / 7)]
    const length = Math.min(LENGTHS[at] ?? 0, Math.ceil(1_000_000 / (perItem ?? 1)))
    return listOf(Array.from({ length }, (_, n) => (ALL_ITEMS[kind] as Item)(n)))
  })
}

function drawMap(draw: Draw): MapValue {
  const [key, kind, at] = [draw(3), draw(ALL_ITEMS.length), draw(LENGTHS.length)]
  return kept(`map ${key} ${kind} ${at}`, () => {
    const keyOf = (n: number) => ['', 'k', fill('%', key === 2 ? 200 : 0)][key] + String(n)
    const perItem =
      kind < ITEMS.length ? 1 : [100, 1_000, 8_000][Math.floor((kind - ITEMS.length) / 7)]
    const length = Math.min(LENGTHS[at] ?? 0, Math.ceil(1_000_000 / (perItem ?? 1)))
    const entries = Array.from(
      { length },
      (_, n) => [keyOf(n), (ALL_ITEMS[kind] as Item)(n)] as const,
    )
    return mapOf(new Map(entries))
  })
}

function drawBytes(draw: Draw): Uint8Array {
  const [kind, size] = [draw(4), SIZES[draw(SIZES.length)] ?? 1]
  const fills = ['a', '\u00e9', '\u{1f600}', 0xff]
  return kept(`bytes ${kind} ${size}`, () => Buffer.alloc(size, fills[kind]))
}

const INTS = [0n, 1n, -1n, 2n, 3n, 40n, 999n, 10_000n, 1n << 40n, (1n << 62n) + 1n]
const DOUBLES = [0, 1.5, -1, 1e300, 5e-324, Number.NaN]

/** An operand of the type. */
export function drawOperand(type: string, draw: Draw): ValueInput {
  const pick = <T>(items: readonly T[]) => items[draw(items.length)] as T
  switch (type) {
    case 'string':
      return drawText(draw)
    case 'bytes':
      return drawBytes(draw)
    case 'list':
      return drawList(draw)
    case 'map':
      return drawMap(draw)
    case 'int':
      return pick(INTS)
    case 'double':
      return pick(DOUBLES)
    case 'bool':
      return draw(2) === 0
    case 'timestamp':
      return { $typeName: 'google.protobuf.Timestamp', seconds: 1_720_829_416n, nanos: 500_000_000 }
    case 'duration':
      return { $typeName: 'google.protobuf.Duration', seconds: 9_000n, nanos: 500_000_000 }
    default:
      return drawOperand(pick(['string', 'bytes', 'list', 'map', 'int', 'double', 'bool']), draw)
  }
}
