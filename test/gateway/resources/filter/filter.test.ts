import { describe, expect, it } from 'vitest'
import type { Fields } from '../../../../src/gateway/resources/filter/fields.ts'
import { FilterLanguage } from '../../../../src/gateway/resources/filter/filter.ts'
import { ExpressionProblem } from '../../../../src/policy/expression/expression-problem.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

const FIELDS: Fields = new Map([
  ['id', 'text'],
  ['note', 'text'],
  ['made_at', 'time'],
  ['gone_at', 'time'],
  ['active', 'bool'],
  ['port', 'number'],
  ['latency', 'number'],
  ['rules', 'texts'],
  ['parts', 'list'],
  ['owner', 'object'],
  ['owner.id', 'text'],
  ['owner.seen_at', 'time'],
  ['never', 'object'],
])

/** Full, sparse and bare: everything there, everything empty, everything left out or null. */
const ITEMS = [
  {
    id: 'full',
    note: 'rack 7, "left"',
    made_at: '2029-12-31T22:00:00Z',
    gone_at: '2029-12-31T23:59:59Z',
    active: true,
    port: 443,
    latency: 1.5,
    rules: ['bind:*', 'bind:a.test'],
    parts: [{ id: 'p' }],
    owner: { id: 'bot_1', seen_at: '2029-12-30T00:00:00Z' },
    never: null,
  },
  {
    id: 'sparse',
    note: '',
    made_at: '2029-12-01T00:00:00Z',
    gone_at: null,
    active: false,
    port: 8443,
    latency: null,
    rules: [],
    parts: [],
    owner: { id: '', seen_at: null },
    never: null,
  },
  { id: 'bare', made_at: '2029-01-01T00:00:00Z', active: false, port: 80, owner: null },
]

/** The wall says 2030-01-01T00:00:00Z. */
const language = new FilterLanguage(new ManualClock())

function idsOf(source: string): string[] {
  const filter = language.compile(source, FIELDS)
  return ITEMS.filter((item) => filter.matches(item)).map(({ id }) => id)
}

describe('a filter', () => {
  it.each<[source: string, ids: string[]]>([
    ['true', ['full', 'sparse', 'bare']],
    ['false', []],
    ['obj.id == "full"', ['full']],
    ["obj.id != 'full'", ['sparse', 'bare']],
    ['"full" == obj.id', ['full']],
    ['obj["id"] == "full"', ['full']],
    ['obj.id > "b" && obj.id <= "full"', ['full', 'bare']],
    ['obj.id in ["bare", "sparse", "x"]', ['sparse', 'bare']],
    ['!(obj.id in ["bare"])', ['full', 'sparse']],
    ['obj.id in []', []],

    ['obj.active', ['full']],
    ['!obj.active', ['sparse', 'bare']],
    ['obj.active == false', ['sparse', 'bare']],
    ['obj.active == (obj.port == 443)', ['full', 'sparse', 'bare']],
    ['obj.active || obj.port == 80', ['full', 'bare']],
    ['(obj.active || obj.port == 80) && obj.id == "bare"', ['bare']],

    ['obj.port == 443', ['full']],
    ['obj.port == 443.0', ['full']],
    ['obj.port == 443u', ['full']],
    ['obj.port >= 443', ['full', 'sparse']],
    ['obj.port < 80.5', ['bare']],
    ['obj.port > -1', ['full', 'sparse', 'bare']],
    ['obj.port in [80, 8443]', ['sparse', 'bare']],

    ['obj.note.contains("7")', ['full']],
    ['obj.note.startsWith("rack")', ['full']],
    ['obj.note.endsWith("\\"left\\"")', ['full']],
    ['!obj.note.contains("7")', ['sparse', 'bare']],
    ['"full, sparse".contains(obj.id)', ['full', 'sparse']],
    ['size(obj.note) == 14', ['full']],
    ['obj.note.size() > 0', ['full']],

    ['"bind:*" in obj.rules', ['full']],
    ['!("bind:*" in obj.rules)', ['sparse', 'bare']],
    ['obj.id in obj.rules', []],
    ['obj.rules.size() == 2', ['full']],
    ['size(obj.parts) > 0', ['full']],

    ['obj.made_at < timestamp("2029-12-31T22:00:01Z")', ['full', 'sparse', 'bare']],
    ['obj.made_at == timestamp("2029-12-31T22:00:00Z")', ['full']],
    ['obj.made_at == timestamp("2030-01-01T00:00:00+02:00")', ['full']],
    ['obj.made_at == timestamp("2029-12-31t22:00:00.000z")', ['full']],
    ['obj.made_at == timestamp("2029-12-01")', ['sparse']],
    ['obj.made_at == timestamp("2029-12-01Z")', ['sparse']],
    ['obj.made_at in [timestamp("2029-12-01"), timestamp("2029-01-01")]', ['sparse', 'bare']],
    ['obj.made_at > timestamp(time.now).subtract("2h1s")', ['full']],
    ['obj.made_at >= timestamp(time.now).subtract("2h")', ['full']],
    ['obj.made_at > timestamp(time.now).subtract("2h")', []],
    ['obj.made_at > timestamp(time.now).subtract("31d")', ['full']],
    ['obj.made_at >= timestamp(time.now).subtract("30d24h")', ['full', 'sparse']],
    ['obj.made_at < timestamp("2029-01-01").add("90m")', ['bare']],
    ['obj.made_at <= time.now', ['full', 'sparse', 'bare']],
    ['timestamp(obj.made_at) < timestamp("2029-06-01")', ['bare']],
    ['obj.made_at < obj.gone_at', ['full']],

    ['obj.owner.id == "bot_1"', ['full']],
    ['obj.owner.id != "bot_1"', ['sparse', 'bare']],
    ['obj.owner.seen_at < time.now', ['full']],
  ])('%s lists %j', (source, ids) => {
    expect(idsOf(source)).toEqual(ids)
  })
})

describe('what is missing', () => {
  it.each<[source: string, ids: string[]]>([
    // A text or a list is empty then, in whatever way one asks.
    ['obj.note == null', ['sparse', 'bare']],
    ['obj.note != null', ['full']],
    ['null == obj.note', ['sparse', 'bare']],
    ['obj.note == ""', ['sparse', 'bare']],
    ['"" != obj.note', ['full']],
    ['obj.note < "a"', ['sparse', 'bare']],
    ['size(obj.note) == 0', ['sparse', 'bare']],
    ['obj.rules == null || obj.rules == ""', ['sparse', 'bare']],
    ['obj.rules == []', ['sparse', 'bare']],
    ['obj.rules != []', ['full']],
    ['obj.parts == null', ['sparse', 'bare']],
    ['obj.owner.id == null', ['sparse', 'bare']],
    // Everything else can be null.
    ['obj.gone_at == null', ['sparse', 'bare']],
    ['obj.gone_at != ""', ['full']],
    ['obj.latency == null', ['sparse', 'bare']],
    ['obj.active == null', []],
    ['obj.owner == null', ['bare']],
    ['obj.owner != null', ['full', 'sparse']],
    ['obj.owner == ""', ['bare']],
    ['obj.never == null', ['full', 'sparse', 'bare']],
    ['obj.owner.seen_at == null', ['sparse', 'bare']],
    // It equals nothing, and is neither before nor after anything.
    ['obj.latency != 1.5', ['sparse', 'bare']],
    ['obj.latency < 2', ['full']],
    ['!(obj.latency < 2)', []],
    ['obj.gone_at < time.now', ['full']],
    ['!(obj.gone_at < time.now)', []],
    ['obj.latency < 2 || obj.port == 80', ['full', 'bare']],
    ['!(obj.latency < 2 && obj.port == 443)', ['sparse', 'bare']],
    // has() asks whether it stands in the answer.
    ['has(obj.note)', ['full', 'sparse']],
    ['!has(obj.note)', ['bare']],
    ['has(obj.owner)', ['full', 'sparse']],
    ['has(obj.owner.seen_at)', ['full']],
    ['has(obj.latency) && obj.latency > 1', ['full']],
  ])('%s lists %j', (source, ids) => {
    expect(idsOf(source)).toEqual(ids)
  })
})

const ALLOWED =
  '==, !=, <, <=, >, >=, in, &&, ||, !, size(), contains(), startsWith(), endsWith(), has() and timestamp()'
const NO_PART = `not supported; filters support ${ALLOWED}`
const TOP =
  'obj.id, obj.note, obj.made_at, obj.gone_at, obj.active, obj.port, obj.latency, obj.rules, obj.parts, obj.owner, obj.never'
const WRITE_TIME = 'write the time as timestamp("2030-01-31T09:00:00Z")'
const TIME_FORM = 'not a valid time: write a time such as "2030-01-31T09:00:00Z"'

describe('a filter is refused', () => {
  it.each<[source: string, place: number | undefined, message: string]>([
    ['', undefined, 'it is empty'],
    [' ', undefined, 'it is empty'],
    ['obj.id =', 7, '= is not an operator: did you mean ==?'],
    ['obj.id == "a" and obj.active', 14, 'and is not an operator: did you mean &&?'],
    ['x'.repeat(4_097), undefined, 'more than 4096 characters'],
    [Array(201).fill('true').join('||'), undefined, 'more than 600 tokens'],
    [`${'('.repeat(33)}true`, undefined, 'brackets are nested more than 32 levels deep'],

    ['obj.idk == "a"', 0, `unknown field obj.idk; the fields are ${TOP}`],
    [
      'true && obj.owner.name == "a"',
      8,
      'unknown field obj.owner.name; the fields are obj.owner.id, obj.owner.seen_at',
    ],
    ['obj.boss.id == "a"', 0, `unknown field obj.boss; the fields are ${TOP}`],
    ['obj.id.x == "a"', 0, 'obj.id is a string and has no fields'],
    ['obj.never.id == "a"', 0, 'obj.never has no fields, it is always null'],
    ['obj.constructor == null', 0, `unknown field obj.constructor; the fields are ${TOP}`],
    [
      'obj.owner.__proto__ == null',
      0,
      'unknown field obj.owner.__proto__; the fields are obj.owner.id, obj.owner.seen_at',
    ],
    ['obj == null', 0, `a field of obj is required; the fields are ${TOP}`],
    ['has(obj.idk)', 4, `unknown field obj.idk; the fields are ${TOP}`],
    ['id == "a"', 0, `unknown name id: the fields are ${TOP}`],
    ['conn.client_ip == "a"', 0, `unknown name conn.client_ip: the fields are ${TOP}`],

    ['obj.rules[0] == "a"', 9, `an index is ${NO_PART}`],
    ['obj.port + 1 == 2', 9, `arithmetic with + is ${NO_PART}`],
    ['-obj.port < 1', 0, `arithmetic with - is ${NO_PART}`],
    ['obj.active ? true : false', 0, `the operator ?: is ${NO_PART}`],
    ['obj.id.matches("a")', 6, `matches() is ${NO_PART}`],
    ['type(obj.id) == string', 0, `type() is ${NO_PART}`],
    ['obj.id.lowerAscii() == "a"', 6, `lowerAscii() is ${NO_PART}`],
    ['obj.rules.exists(r, r == "a")', 9, `macros are ${NO_PART}`],
    ['{"a": true}.a', 0, `a field of a value is ${NO_PART}`],
    ['{"a": 1} == {"a": 1}', 0, `a map is ${NO_PART}`],
    ['["a"] == obj.rules', 0, 'a list is only allowed to the right of in'],
    ['["a"] in obj.rules', 0, 'a list is only allowed to the right of in'],
    ['obj.id == b"a"', 10, 'bytes are not supported: write a string'],
    ['size(obj.id, 1) == 1', 0, `size() in this form is ${NO_PART}`],
    ['contains(obj.id, "a")', 0, `contains() in this form is ${NO_PART}`],
    ['has("a")', 0, `has() in this form is ${NO_PART}`],

    ['obj.id', 0, 'a filter must be true or false, not a string'],
    ['size(obj.id)', 0, 'a filter must be true or false, not a number'],
    ['null', 0, 'a filter must be true or false, not null'],
    ['obj.active && obj.id', 14, 'expected true or false, found a string'],
    ['!obj.port', 1, 'expected true or false, found a number'],
    ['obj.port == "443"', 9, 'obj.port (a number) and a string cannot be compared with =='],
    ['obj.port == ""', 9, 'obj.port (a number) and a string cannot be compared with =='],
    [
      'obj.active < true',
      11,
      'obj.active (true or false) and true or false cannot be compared with <',
    ],
    ['obj.id > 5', 7, 'obj.id (a string) and a number cannot be compared with >'],
    [
      'obj.made_at > "2030"',
      12,
      `obj.made_at (a time) and a string cannot be compared with >: ${WRITE_TIME}`,
    ],
    [
      'obj.made_at == "2030"',
      12,
      `obj.made_at (a time) and a string cannot be compared with ==: ${WRITE_TIME}`,
    ],
    [
      'obj.rules == "a"',
      10,
      'obj.rules (a list of strings) and a string cannot be compared with ==: use in or size() for a list',
    ],
    [
      'obj.owner == "a"',
      10,
      'obj.owner (an object) and a string cannot be compared with ==: use a field of the object',
    ],
    [
      'obj.owner == obj.owner',
      10,
      'obj.owner (an object) and obj.owner (an object) cannot be compared with ==: use a field of the object',
    ],
    [
      'size(obj.id) == null',
      13,
      'a number and null cannot be compared with ==: only a field can be null',
    ],
    ['null == null', 5, 'null and null cannot be compared with ==: only a field can be null'],

    [
      'obj.id in "full"',
      7,
      'in cannot find obj.id (a string) in a string: in needs a literal list, or a string and a list of strings',
    ],
    [
      'obj.port in obj.rules',
      9,
      'in cannot find obj.port (a number) in obj.rules (a list of strings): in needs a literal list, or a string and a list of strings',
    ],
    [
      '"p" in obj.parts',
      4,
      'in cannot find a string in obj.parts (a list): in needs a literal list, or a string and a list of strings',
    ],
    [
      'obj.rules in ["a"]',
      10,
      'in cannot find obj.rules (a list of strings) in this list: in needs a value and constants of the same type',
    ],
    [
      'obj.id in ["a", 1]',
      7,
      'in cannot find obj.id (a string) in this list: in needs a value and constants of the same type',
    ],
    [
      'obj.id in ["a", obj.note]',
      7,
      'in cannot find obj.id (a string) in this list: in needs a value and constants of the same type',
    ],
    ['size(obj.port) == 1', 0, 'size() needs a string or a list, found obj.port (a number)'],
    [
      'obj.port.contains("4")',
      8,
      'contains() needs two strings, found obj.port (a number) and a string',
    ],
    [
      'obj.id.startsWith(1)',
      6,
      'startsWith() needs two strings, found obj.id (a string) and a number',
    ],
    [
      'obj.rules.contains("a")',
      9,
      'contains() needs two strings, found obj.rules (a list of strings) and a string: use in for a list',
    ],

    ['obj.made_at > timestamp("soon")', 24, TIME_FORM],
    ['obj.made_at > timestamp("2030-13-01T00:00:00Z")', 24, TIME_FORM],
    ['obj.made_at > timestamp("2030-01-01T00:00:00")', 24, TIME_FORM],
    [
      'obj.made_at > timestamp(obj.id)',
      24,
      'timestamp() needs a string, time.now or a time, not obj.id (a string)',
    ],
    ['obj.made_at.add("1h") < time.now', 11, 'add() needs timestamp(time.now) or a literal time'],
    [
      'obj.made_at < time.now.subtract("1y")',
      32,
      'subtract() needs a duration such as "7d", "24h" or "15m"',
    ],
    [
      'obj.made_at < time.now.subtract(7)',
      32,
      'subtract() needs a duration such as "7d", "24h" or "15m"',
    ],
    [
      'obj.made_at < time.now.subtract("")',
      32,
      'subtract() needs a duration such as "7d", "24h" or "15m"',
    ],
  ])('%.50s', (source, offset, message) => {
    const compile = () => language.compile(source, FIELDS)
    expect(compile).toThrow(ExpressionProblem)
    expect(compile).toThrow(expect.objectContaining({ offset, message }))
  })
})

describe('an item that costs too much', () => {
  it('is told, and not taken for one that does not match', () => {
    const filter = language.compile(Array(60).fill('obj.note.contains("x")').join(' || '), FIELDS)
    const item = (length: number) => ({ id: 'long', note: 'a'.repeat(length) })
    expect(filter.matches(item(10_000))).toBe(false)
    expect(() => filter.matches(item(400_000))).toThrow(
      expect.objectContaining({ name: 'EvaluationError', isOverspent: true }),
    )
  })
})
