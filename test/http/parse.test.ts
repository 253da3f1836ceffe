import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { AppError } from '../../src/base/app-error.ts'
import { parse, toPointer } from '../../src/http/parse.ts'

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
