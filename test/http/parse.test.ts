import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { AppError } from '../../src/base/app-error.ts'
import { parse, readConditions, toPointer } from '../../src/http/parse.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

const Schema = z.strictObject({
  name: z.string().max(3, 'may have 3 characters'),
  port: z.number(),
  tags: z.array(z.strictObject({ key: z.string() })).optional(),
})

function errorsOf(value: unknown, schema: z.ZodType = Schema) {
  try {
    parse(schema, value)
  } catch (error) {
    expect(error).toMatchObject({ code: 'invalid-request', status: 400 })
    return (error as AppError).errors
  }
  throw new Error('was accepted')
}

describe('parse', () => {
  it('hands out what the schema makes of the value', () => {
    expect(parse(z.string().transform(Number), '7')).toBe(7)
  })

  it('names all bad fields at once', () => {
    expect(errorsOf({ name: 'long', tags: [{ key: 1 }], colour: 'red', 'a/b~c': 1 })).toEqual([
      { pointer: '/name', detail: 'may have 3 characters' },
      { pointer: '/port', detail: 'is required' },
      { pointer: '/tags/0/key', detail: 'must be a string' },
      { pointer: '/colour', detail: 'is unknown' },
      { pointer: '/a~1b~0c', detail: 'is unknown' },
    ])
  })

  it.each([[null], [[]], ['text'], [7]])('wants an object instead of %j', (value) => {
    expect(errorsOf(value)).toEqual([{ pointer: '', detail: 'must be an object' }])
  })

  it('says limits and choices in words', () => {
    const limits = z.strictObject({
      text: z.string().min(1),
      long: z.string().max(3),
      list: z.array(z.string()).max(1),
      number: z.int().max(86_400),
      kind: z.enum(['slack', 'ntfy']),
      version: z.literal(1),
    })
    const value = { text: '', long: 'long', list: ['a', 'b'], number: 1e5, kind: 'x', version: 2 }
    expect(errorsOf(value, limits).map(({ detail }) => detail)).toEqual([
      'must have at least 1 character',
      'must have at most 3 characters',
      'must have at most 1 entry',
      'must be at most 86400',
      'must be one of "slack", "ntfy"',
      'must be 1',
    ])
  })

  it('tells null from missing', () => {
    expect(errorsOf({ name: null, port: 1 })).toEqual([
      { pointer: '/name', detail: 'must be a string' },
    ])
  })

  it('counts thousands of mistakes but shows fifty', () => {
    const value = Object.fromEntries(Array.from({ length: 2_000 }, (_, n) => [`key${n}`, 1]))
    expect(errorsOf({ name: 'a', port: 1, ...value })).toHaveLength(50)
    expect(() => parse(Schema, { name: 'a', port: 1, ...value })).toThrow('2000 fields')
  })

  it('asks for the field that an unknown field probably means, also inside of unions', () => {
    const nested = z.strictObject({
      forwards_to: z.string().optional(),
      of: z.union([z.string(), z.strictObject({ description: z.string().optional() })]).optional(),
      list: z.array(Schema.partial()).optional(),
    })
    expect(
      errorsOf({ forwardsTo: 'a', colour: 1, list: [{ nmae: 'b', Port: 1 }] }, nested),
    ).toEqual([
      { pointer: '/list/0/nmae', detail: 'is unknown. Did you mean name?' },
      { pointer: '/list/0/Port', detail: 'is unknown. Did you mean port?' },
      { pointer: '/forwardsTo', detail: 'is unknown. Did you mean forwards_to?' },
      { pointer: '/colour', detail: 'is unknown' },
    ])
  })

  it('throws nothing but AppError', () => {
    expect(() => parse(Schema, undefined)).toThrow(AppError)
  })
})

describe('toPointer', () => {
  it.each([
    [[], ''],
    [['a', 0, 'b'], '/a/0/b'],
    [['~/'], '/~0~1'],
  ])('%j is %j', (path, pointer) => {
    expect(toPointer(path)).toBe(pointer)
  })
})

const TAG = '"5c1f"'

/** `etag` null: there is nothing yet. */
async function answerTo(headers: Record<string, string>, etag: string | null = TAG) {
  const app = appWith((it) =>
    it.put('/', (request, response) => {
      readConditions(request).require(etag ?? undefined)
      response.end('done')
    }),
  )
  const { at } = await serveHttp(app)
  return sendRequest(at, { method: 'PUT', headers })
}

async function statusOf(headers: Record<string, string>, etag: string | null = TAG) {
  const { status, json } = await answerTo(headers, etag)
  return json ? `${status} ${json.code}` : String(status)
}

const FAILED = '412 precondition-failed'

describe('readConditions', () => {
  it.each([
    [{}, '200'],
    [{ 'if-match': TAG }, '200'],
    [{ 'if-match': `"other", ${TAG}` }, '200'],
    [{ 'if-match': '*' }, '200'],
    [{ 'if-match': '"other"' }, FAILED],
    [{ 'if-match': `W/${TAG}` }, FAILED],
    [{ 'if-none-match': '*' }, FAILED],
    [{ 'if-none-match': TAG }, FAILED],
    [{ 'if-none-match': `W/${TAG}` }, FAILED],
    [{ 'if-none-match': '"other"' }, '200'],
    [{ 'if-match': TAG, 'if-none-match': '"other"' }, '200'],
    [{ 'if-match': TAG, 'if-none-match': TAG }, FAILED],
  ])('for %j answers %s', async (headers, expected) => {
    expect(await statusOf(headers as Record<string, string>)).toBe(expected)
  })

  it.each([
    [{ 'if-match': '*' }, FAILED],
    [{ 'if-match': TAG }, FAILED],
    [{ 'if-none-match': '*' }, '200'],
    [{ 'if-none-match': TAG }, '200'],
  ])('where there is nothing, for %j answers %s', async (headers, expected) => {
    expect(await statusOf(headers as Record<string, string>, null)).toBe(expected)
  })

  it.each([
    [{ 'if-match': '"other"' }, TAG, /^The current ETag is "5c1f"\. Read the resource again, then/],
    [
      { 'if-none-match': '*' },
      TAG,
      /^The resource exists already.* send If-Match: "5c1f" instead of/,
    ],
    [{ 'if-none-match': TAG }, TAG, /^The resource exists already/],
    [
      { 'if-match': '*' },
      null,
      /^The resource does not exist\. To create it, .* without If-Match\.$/,
    ],
    [{ 'if-match': TAG }, null, /^The resource does not exist\. To create it, /],
  ])('for %j at %s says what helps', async (headers, etag, expected) => {
    const { json } = await answerTo(headers as Record<string, string>, etag)
    expect(json.detail).toMatch(expected)
  })

  it.each(['', '5c1f', '"5c1f', '"a" "b"', '"a",', Array(21).fill('"a"').join(', ')])(
    'refuses %j as no entity tags',
    async (tags) => {
      expect(await statusOf({ 'if-match': tags })).toBe('400 invalid-request')
    },
  )
})
