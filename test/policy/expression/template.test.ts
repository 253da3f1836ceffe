// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { splitTemplate } from '../../../src/policy/expression/compiled-expression.ts'
import { onRequest, PolicyBench, replyOf } from '../../helpers/policy-exchange.ts'

async function render(text: string, vars: Record<string, unknown> = {}): Promise<string> {
  const set = Object.entries(vars).map(([name, value]) => ({ [name]: value }))
  const bench = new PolicyBench({
    on_http_request: [
      {
        actions: [
          ...(set.length > 0 ? [{ type: 'set-vars', config: { vars: set } }] : []),
          { type: 'custom-response', config: { body: text } },
        ],
      },
    ],
  })
  return replyOf((await bench.request({ headers: ['X-A', '1'] })).outcome).body
}

describe('an interpolated text', () => {
  it.each([
    ['plain', 'plain'],
    ['', ''],
    ['$ and $1 and {x} and $', '$ and $1 and {x} and $'],
    ['${req.method}', 'GET'],
    ['a ${req.method} b ${conn.client_ip} c', 'a GET b 203.0.113.9 c'],
    ['${1 + 2}', '3'],
    ['${1.5} ${true} ${null} ${2u}', '1.5 true null 2'],
    ['${timestamp("2024-07-13T00:10:16Z")}', '2024-07-13T00:10:16Z'],
    ['${duration("90s")}', '90s'],
    ['${b"bytes"}', 'bytes'],
    ['${[1, "a", null]}', '[1,"a",null]'],
    ['${{"a": {"b": [1]}}}', '{"a":{"b":[1]}}'],
    ['${req.headers["x-a"]}', '["1"]'],
    ['${"}" + \'{\' + "${"}', '}{${'],
    ['${"\\"}"}', '"}'],
    ["${r'\\'}", '\\'],
    ['${"""a"}"""}', 'a"}'],
    ['${req.headers.exists(h, h == "}") ? "yes" : "no"}', 'no'],
  ])('%s comes to %j', async (text, expected) => {
    expect(await render(text)).toBe(expected)
  })

  it('is computed each time it is used', async () => {
    const bench = new PolicyBench(onRequest('custom-response', { body: '${time.now}' }))
    expect(replyOf((await bench.request()).outcome).body).toBe('2030-01-01T00:00:00Z')
    await bench.clock.advance(1_500)
    expect(replyOf((await bench.request()).outcome).body).toBe('2030-01-01T00:00:01.500Z')
  })

  it('keeps the type of a value that is one interpolation, and makes text of all others', async () => {
    const text = '${type(vars.whole) == int} ${type(vars.mixed) == string}'
    expect(await render(text, { whole: '${1 + 1}', mixed: 'n ${1 + 1}' })).toBe('true true')
  })

  it.each(['${', '${req.method', 'a ${"}', '${{"a": 1}'])('has to be closed: %s', (text) => {
    expect(splitTemplate(text).unclosed).toBe(text.indexOf('${'))
  })
})
