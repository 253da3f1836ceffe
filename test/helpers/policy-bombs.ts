import { type PriceCase, priceCases } from '../../bench/expression-price-cases.ts'

/** Values of the sizes that calls of the price list name, as one set-vars action makes them. */
const VARS = [
  { s: 'Device 17, north' },
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation of policies
  { list: '${lists.range(200)}' },
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation of policies
  { texts: "${lists.range(100).map(i, 'item ' + string(i))}" },
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation of policies
  { long: "${lists.range(60).map(i, 'The quick brown fox jumps over it. ').join('')}" },
  { nested: [[1, 2, 3], [4]] },
  { map: { a: 'b', c: 'd' } },
  { json: '{"items": [1, 2, {"a": null}]}' },
  { query: 'a=1&b=2&c=3' },
  { url: 'https://example.com/path?a=b' },
  { escaped: 'a%20b%20c' },
  { base64: 'VGhlIHF1aWNrIGJyb3duIGZveA==' },
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation of policies
  { bytes: "${b'The quick brown fox'}" },
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation of policies
  { upper: "${'THE QUICK BROWN FOX'}" },
]
const SET_VARS = { type: 'set-vars', config: { vars: VARS } }

/** What froze a gateway: each expression takes 4,096 digests, and all are true. */
export function digestBomb(rules: number): object {
  const expression = "lists.range(4096).map(x,hash.md5('a'))!=[]"
  return {
    on_http_request: Array.from({ length: rules }, () => ({
      expressions: Array(50).fill(expression),
      actions: [{ type: 'add-headers', config: { headers: { 'x-a': 'b' } } }],
    })),
  }
}

/** The same where only the request says how many, so that no check can know. */
export function askedBomb(): object {
  const expression = "lists.range(int(req.headers['x-n'][0])).map(x,hash.md5('a'))!=[]"
  return {
    on_http_request: Array.from({ length: 4 }, () => ({
      expressions: Array(50).fill(expression),
      actions: [{ type: 'add-headers', config: { headers: { 'x-a': 'b' } } }],
    })),
  }
}

/** Different expressions, as many as one document may have. */
export function manyExpressions(seed: number, count = 1_000): object {
  const rules = 20
  return {
    on_http_request: Array.from({ length: rules }, (_, rule) => ({
      expressions: Array.from({ length: count / rules }, (_, index) => {
        const name = `${seed}-${rule}-${index}`
        return `req.url.path.startsWith('/${name}') && 'x-${name}' in req.headers && req.host != 'a'`
      }),
      actions: [{ type: 'deny' }],
    })),
  }
}

const MACRO = /\.(?:map|filter|all|exists|sortBy)\(/

/** Documents that call every function, in macros inside macros; `random(n)` is below n. */
export function generateBombs(count: number, random: (below: number) => number): object[] {
  const cases = priceCases().filter(({ phase }) => phase === 'on_http_request')
  const pick = <T>(items: readonly T[]): T => items[random(items.length)] as T
  const range = () => {
    const constant = pick([1, 2, 3, 5, 8, 30])
    return pick([
      `lists.range(${constant})`,
      "lists.range(int(req.headers['x-n'][0]))",
      'vars.texts',
    ])
  }
  // In turn, so that each function is called by some document.
  let next = 0
  const call = () => (cases[next++ % cases.length] as PriceCase).call
  const macro = (inner: string) =>
    pick([
      `${range()}.map(x, ${inner}).size() >= 0`,
      `${range()}.filter(x, [${inner}].size() > 0).size() >= 0`,
      `(${range()}.all(x, [${inner}].size() > 0) || true)`,
      `(${range()}.exists(x, [${inner}].size() < 0) || true)`,
    ])
  const expression = () => {
    const calls = Array.from({ length: 1 + random(3) }, call).join(', ')
    // Macros may stand two deep.
    return MACRO.test(calls) || random(2) === 0
      ? macro(`[${calls}]`)
      : `${range()}.map(z, ${macro(`[z, ${calls}]`)}).size() >= 0`
  }
  return Array.from({ length: count }, () => ({
    on_http_request: [
      { actions: [SET_VARS] },
      ...Array.from({ length: 1 + random(4) }, () => ({
        expressions: Array.from({ length: 1 + random(10) }, expression),
        actions: [{ type: 'add-headers', config: { headers: { 'x-a': 'b' } } }],
      })),
    ],
  }))
}
