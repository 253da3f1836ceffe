import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { JsonReader } from '../../src/muxado/json-reader.ts'

const read = (...parts: string[]) => {
  const reader = new JsonReader(1_000_000)
  return parts.map((part) => reader.push(Buffer.from(part))).at(-1)
}

describe('JsonReader', () => {
  it.each([
    ['an empty object', '{}', {}],
    ['white space before it', ' \r\n\t{"a":1}', { a: 1 }],
    ['braces in a string', '{"a":"}{]["}', { a: '}{][' }],
    ['quotes in a string', '{"a":"\\"}\\\\"}', { a: '"}\\' }],
    ['what nests', '{"a":[{"b":{}}],"c":{}}', { a: [{ b: {} }], c: {} }],
    ['something behind it', '{"a":1}{"b":2}', { a: 1 }],
  ])('reads %s', (_name, text, value) => {
    expect(read(text)).toEqual(value)
  })

  it('waits for the last brace', () => {
    expect(read('{"a":', '{}')).toBeUndefined()
    expect(read('{"a":', '{}', '}')).toEqual({ a: {} })
  })

  it.each([
    ['an array', '[]'],
    ['a string', '"{}"'],
    ['a number', '1{}'],
    ['a closing brace', '}'],
    ['braces with nonsense', '{nonsense}'],
    ['braces that do not match', '{]'],
    ['a raw line break in a string', '{"a":"\n"}'],
  ])('refuses %s', (_name, text) => {
    expect(() => read(text)).toThrow(expect.objectContaining({ reason: 'message-invalid' }))
  })

  it('keeps what the parser said as the cause', () => {
    expect(() => read('{nonsense}')).toThrow(
      expect.objectContaining({ cause: expect.any(SyntaxError) }),
    )
  })

  it('takes as many bytes as its limit and not one more', () => {
    expect(new JsonReader(7).push(Buffer.from('{"a":1} '))).toEqual({ a: 1 })
    const reader = new JsonReader(6)
    reader.push(Buffer.from('{"a":'))
    expect(() => reader.push(Buffer.from('12'))).toThrow(
      expect.objectContaining({ reason: 'message-too-large' }),
    )
  })

  it('reads any object alike however it is cut', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()),
        fc.integer({ min: 1, max: 20 }),
        (value, size) => {
          const text = JSON.stringify(value)
          const bytes = Buffer.from(text)
          const reader = new JsonReader(bytes.length)
          let found: unknown
          for (let at = 0; at < bytes.length; at += size) {
            expect(found).toBeUndefined()
            found = reader.push(bytes.subarray(at, at + size))
          }
          expect(found).toEqual(JSON.parse(text))
        },
      ),
    )
  })
})
