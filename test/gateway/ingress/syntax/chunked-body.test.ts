import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ChunkedBody } from '../../../../src/gateway/ingress/syntax/chunked-body.ts'
import { HttpSyntaxError } from '../../../../src/gateway/ingress/syntax/http-syntax.ts'

/** Reads `text` in pieces that end at `cuts`; answers content, strict form and the rest. */
function read(text: string, kind: 'request' | 'response', cuts: readonly number[] = []) {
  const body = new ChunkedBody(kind)
  const bytes = Buffer.from(text, 'latin1')
  const content: Buffer[] = []
  const strict: Buffer[] = []
  let from = 0
  for (const cut of [...cuts].sort((a, b) => a - b).concat(bytes.length)) {
    const piece = bytes.subarray(from, Math.max(from, cut))
    from += piece.length
    // Each piece in memory of its own: what is passed on may not depend on what stands beside it.
    const end = body.advance(Buffer.from(piece), 0, content, strict)
    if (body.isDone)
      return { body, content, strict, rest: piece.length - end + bytes.length - from }
  }
  return { body, content, strict, rest: 0 }
}
const textOf = (parts: readonly Buffer[]) => Buffer.concat(parts).toString('latin1')

describe('a chunked body of a device', () => {
  it.each([
    ['blanks after the size', '5  \r\nhello\r\n0\t\r\n\r\n'],
    ['a bare LF behind the size', '5\nhello\r\n0\r\n\r\n'],
    ['a bare LF behind the content', '5\r\nhello\n0\r\n\r\n'],
    ['bare LF everywhere', '5\nhello\n0\n\n'],
    ['a quoted extension', '5;a="x;y\\"z"\r\nhello\r\n0\r\n\r\n'],
    ['blanks around an extension', '5 ; a = b\r\nhello\r\n0\r\n\r\n'],
    ['leading zeros', '00000005\r\nhello\r\n000\r\n\r\n'],
  ])('is read with %s, and goes on in strict form, wherever it is cut', (_name, text) => {
    for (let cut = 0; cut <= text.length; cut += 1) {
      const { body, content, strict, rest } = read(text, 'response', [cut])
      expect([body.isDone, textOf(content), rest]).toEqual([true, 'hello', 0])
      const again = read(textOf(strict), 'request')
      expect([again.body.isDone, textOf(again.content), again.rest]).toEqual([true, 'hello', 0])
    }
  })

  it('keeps what is strict already in one piece', () => {
    const text = '5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n'
    const { strict } = read(`${text}HTTP/1.1 200`, 'response')
    expect(strict.map(String)).toEqual([text])
  })

  it('passes trailers on in strict form', () => {
    const { body, strict } = read('0\nx-sum : 1\n\n', 'response')
    expect(body.trailers).toEqual(['x-sum', '1'])
    expect(textOf(strict)).toBe('0\r\nx-sum: 1\r\n\r\n')
  })

  it.each([
    ['a CR that no LF follows', '5\rhello\r\n0\r\n\r\n'],
    ['a size with something in it', '5 5\r\nhello\r\n'],
    ['no size', '\r\nhello\r\n'],
    ['a sign', '+5\r\nhello\r\n'],
    ['a NUL in an extension', '5;a=\0\r\nhello\r\n'],
    ['content that is longer than its size', '5\r\nhello!\r\n'],
    ['a line without end', `5;${'a'.repeat(2_000)}`],
    ['a framing field as a trailer', '0\ncontent-length : 5\n\n'],
  ])('is refused with %s', (_name, text) => {
    expect(() => read(text, 'response')).toThrow(HttpSyntaxError)
  })

  it('means the same in strict form, whatever it is made of and however it is cut', () => {
    const chunk = fc.record({
      content: fc.string({ minLength: 1, maxLength: 40 }),
      pad: fc.constantFrom('', ' ', '\t  ', ';a', ' ;a="b\tc"', ';\xff=,'),
      ends: fc.tuple(fc.constantFrom('\r\n', '\n'), fc.constantFrom('\r\n', '\n')),
    })
    const cuts = fc.array(fc.nat(400), { maxLength: 12 })
    fc.assert(
      fc.property(fc.array(chunk, { maxLength: 6 }), cuts, (chunks, cuts) => {
        const lines = chunks.map(({ content, pad, ends: [first, second] }) => {
          const size = Buffer.from(content, 'latin1').length.toString(16)
          return `${size}${pad}${first}${content}${second}`
        })
        const { body, content, strict } = read(`${lines.join('')}0\r\n\r\n`, 'response', cuts)
        expect(body.isDone).toBe(true)
        const again = read(textOf(strict), 'request', cuts)
        expect(again.body.isDone).toBe(true)
        expect(textOf(again.content)).toBe(textOf(content))
      }),
      { numRuns: 500 },
    )
  })
})

describe('a chunked body of a visitor', () => {
  it.each([
    ['blanks after the size', '5 \r\nhello\r\n0\r\n\r\n'],
    ['a bare LF', '5\nhello\r\n0\r\n\r\n'],
    ['a bare LF behind the content', '5\r\nhello\n0\r\n\r\n'],
    ['a quoted extension', '5;a="b"\r\nhello\r\n0\r\n\r\n'],
    ['a bare LF in the trailers', '0\r\nx-sum: 1\n\r\n'],
    ['a blank before a colon', '0\r\nx-sum : 1\r\n\r\n'],
  ])('is refused with %s', (_name, text) => {
    expect(() => read(text, 'request')).toThrow(HttpSyntaxError)
  })
})
