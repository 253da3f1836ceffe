import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { ACTIONS } from '../../../src/policy/actions/all-actions.ts'
import { policyJson } from '../../../src/policy/document/policy-text.ts'
import { PolicyError, type PolicyProblem } from '../../../src/policy/document/problem.ts'
import { type CompiledPolicy, compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { createExchange, onRequest, replyOf } from '../../helpers/policy-exchange.ts'

const FIXTURES = join(import.meta.dirname, '../fixtures')
const SHIPPED = join(import.meta.dirname, '../../../default-policy.json')
const WEBHOOK = { provider: 'github', secret: 'shared secret' }
const { log } = captureLog()

const compile = (source: unknown): CompiledPolicy =>
  compilePolicy(source, { clock: systemClock, log })

function problemsOf(source: unknown): readonly PolicyProblem[] {
  try {
    return compile(source).warnings
  } catch (error) {
    if (error instanceof PolicyError) return error.problems
    throw error
  }
}

const codesOf = (source: unknown) =>
  problemsOf(source)
    .filter(({ severity }) => severity === 'error')
    .map(({ code, pointer }) => `${code} ${pointer}`)

const files = (kind: string) =>
  readdirSync(join(FIXTURES, kind)).map((name) => [name, join(FIXTURES, kind, name)] as const)

describe('documents that can be used', () => {
  it.each([...files('valid'), ['default-policy.json', SHIPPED] as const])('%s', (_, path) => {
    const text = readFileSync(path, 'utf8')
    const warned = Array.from(text.matchAll(/^# warning (.*)$/gm), ([, place]) => place)
    const problems = problemsOf(text)
    expect(problems.map(({ pointer }) => pointer)).toEqual(warned)
    expect(problems.filter(({ severity }) => severity === 'error')).toEqual([])
  })

  it('have every action that there is in one of them', () => {
    const text = readFileSync(join(FIXTURES, 'valid/every-action.yaml'), 'utf8')
    const used = Array.from(text.matchAll(/\btype: ([a-z-]+)/g), ([, type]) => type)
    expect([...ACTIONS.keys()].filter((type) => !used.includes(type))).toEqual([])
  })
})

describe('documents that cannot be used', () => {
  it.each(files('invalid'))('%s', (_, path) => {
    const text = readFileSync(path, 'utf8')
    const expected = Array.from(text.matchAll(/^# (ERR_NGROK_\d+) (.*)$/gm), ([, code, place]) =>
      place === 'at the top' ? `${code} ` : `${code} ${place}`,
    )
    expect(expected.length).toBeGreaterThan(0)
    expect(codesOf(text).sort()).toEqual(expected.sort())
  })

  it('are explained in sentences, all at once', () => {
    const text = readFileSync(join(FIXTURES, 'invalid/rate-limit-fields.yaml'), 'utf8')
    expect(problemsOf(text).map(({ message }) => message)).toEqual([
      'algorithm is missing. It must be sliding_window.',
      'name, capacity, rate and bucket_key are missing.',
      'enforce must be true or false.',
    ])
  })

  it('say what can be judged by the hosted service alone', () => {
    const foreign = (source: unknown) => problemsOf(source).map(({ isForeign }) => isForeign)
    const rule = (type: string) => ({ on_http_request: [{ actions: [{ type }] }] })
    expect(foreign(rule('teleport'))).toEqual([true])
    expect(foreign(rule('saml'))).toEqual([true])
    expect(foreign(rule('compress-response'))).toEqual([false])
    expect(foreign({ on_event_stream_message: [] })).toEqual([true])
  })
})

describe('a YAML text', () => {
  const nested = (levels: number) =>
    Array.from({ length: levels }, (_, level) => `${' '.repeat(level)}a:`).join('\n')
  const wide = `a: &a [${Array(5_000).fill('b').join(', ')}]\n${Array.from({ length: 20 }, (_, index) => `c${index}: *a`).join('\n')}`

  it('is read up to a number of levels, values and repetitions, with the place of the problem', () => {
    expect(problemOf(nested(300))).toMatch(
      /nested more than 100 levels deep \(line 10\d, column \d+\)/,
    )
    expect(problemOf(`a: ${'['.repeat(10_000)}`)).toMatch(/100 levels deep \(line 1, column 10\d\)/)
    expect(problemOf(wide)).toContain('more than 32768 values')
    expect(problemOf('a:\n  b: [')).toMatch(/line 2, column/)
    expect(problemOf('a: 1\n---\nb: 2')).toContain('(line 2, column 1)')
    expect(problemOf('x'.repeat(70_000))).toContain('at most 65536 characters')
  })

  it('is read as it was meant', () => {
    expect(policyJson('a: [1, {b: c}]')).toEqual({ json: '{"a":[1,{"b":"c"}]}' })
    expect(policyJson('a: &x [1]\nb: *x')).toEqual({ json: '{"a":[1],"b":[1]}' })
  })

  it('is refused if its aliases make a long text of it', () => {
    const text = `a: &a "${'x'.repeat(60_000)}"\nb: [${'*a, '.repeat(99)}]`
    expect(problemOf(text)).toContain('exceeds 131072 characters as JSON')
  })

  it('is refused if an alias contains itself', () => {
    expect(problemOf('b: 1\na: &a [1, *a]')).toBe(
      'The policy cannot be read: an alias contains itself (*a) (line 2, column 11).',
    )
    expect(problemOf('a: &a {b: {c: *a}}')).toContain('an alias contains itself')
    expect(policyJson('a: &a [&a 1, *a]')).toEqual({ json: '{"a":[1,1]}' })
  })

  function problemOf(text: string): string {
    const read = policyJson(text)
    return 'problem' in read ? read.problem : ''
  }
})

describe('formats', () => {
  const json =
    '{"on_http_request": [{"actions": [{"type": "deny", "config": {"status_code": 404}}]}]}'

  it.each([
    ['JSON text', json],
    [
      'YAML text',
      'on_http_request:\n  - actions:\n      - type: deny\n        config: {status_code: 404}',
    ],
    ['a parsed value', JSON.parse(json)],
  ])('takes %s', (_, source) => {
    expect(compile(source).onHttpRequest(createExchange())).toMatchObject({
      reply: { status: 404 },
    })
  })

  it('takes null for no rules', () => {
    const policy = compile(null)
    expect(policy.hasConnectRules || policy.hasRequestRules || policy.hasResponseRules).toBe(false)
    expect(policy.onHttpRequest(createExchange())).toEqual({ kind: 'continue' })
  })

  it('refuses JSON with a key twice, where JSON.parse would keep the last', () => {
    expect(
      codesOf('{"on_http_request": [{"actions":[{"type":"deny"}]}], "on_http_request": []}'),
    ).toEqual(['ERR_NGROK_2236 /on_http_request'])
    expect(codesOf('{"on_http_request": [], "x\\"y": 1, "a": "\\"b\\": {"}')).toEqual([
      'ERR_NGROK_2204 /x"y',
      'ERR_NGROK_2204 /a',
    ])
  })

  it.each([[''], ['42'], ['"text"'], [42], [[]], [true]])('refuses %j', (source) => {
    expect(codesOf(source)).toEqual(['ERR_NGROK_2236 '])
  })

  it('escapes pointers', () => {
    expect(codesOf({ 'a/b~c': [] })).toEqual(['ERR_NGROK_2204 /a~1b~0c'])
  })
})

describe('the old names of phases', () => {
  it('mean requests and responses', () => {
    const policy = compile(readFileSync(join(FIXTURES, 'valid/legacy.json'), 'utf8'))
    const outcome = policy.onHttpRequest(createExchange({ method: 'PUT' }))
    if (outcome instanceof Promise) throw new Error('nothing has to wait here')
    expect(replyOf(outcome)).toMatchObject({ status: 405, body: 'no' })
    expect(policy.hasResponseRules).toBe(true)
  })

  it('have pointers into the document as it was written', () => {
    expect(
      codesOf({ outbound: [{ actions: [{ type: 'verify-webhook', config: WEBHOOK }] }] }),
    ).toEqual(['ERR_NGROK_2202 /outbound/0/actions/0/type'])
  })

  it('can be switched off, and are checked nevertheless', () => {
    const rules = [{ actions: [{ type: 'deny' }] }]
    expect(compile({ enabled: false, inbound: rules }).hasRequestRules).toBe(false)
    expect(codesOf({ enabled: false, inbound: [{ actions: [] }] })).toHaveLength(1)
    const bad = { expressions: ['req.nope'], actions: [{ type: 'deny', config: { status: 1 } }] }
    expect(codesOf({ enabled: false, inbound: [bad] })).toHaveLength(2)
    expect(compile({ enabled: false, on_http_request: rules }).hasRequestRules).toBe(false)
    expect(compile({ enabled: true, on_http_request: rules }).hasRequestRules).toBe(true)
    expect(codesOf({ enabled: 'no', on_http_request: rules })).toEqual(['ERR_NGROK_2204 /enabled'])
  })
})

describe('what people write who use another tool', () => {
  it('has headers whose values are no texts in YAML', async () => {
    const policy = compile(
      'on_http_request: [{actions: [{type: custom-response, config: {headers: {is-ngrok: 1, debug: true}}}]}]',
    )
    const outcome = policy.onHttpRequest(createExchange())
    if (outcome instanceof Promise) throw new Error('nothing has to wait here')
    const { headers } = replyOf(outcome)
    expect([headers.get('is-ngrok'), headers.get('debug')]).toEqual(['1', 'true'])
  })

  it.each([
    [10_000_000_000, undefined],
    [120_000_000_000, undefined],
    [121_000_000_000, 'must be text such as'],
    [10, 'must be text such as'],
    [-10_000_000_000, 'must be text such as'],
  ])('has durations in nanoseconds: %d', (tripped_duration, sentence) => {
    const config = { error_threshold: 0.5, tripped_duration }
    const [problem] = problemsOf(onRequest('circuit-breaker', config))
    if (sentence === undefined) expect(problem).toBeUndefined()
    else expect(problem?.message).toContain(sentence)
  })

  it.each(['binding', 'bindings', 'pooling_enabled'])('is told where %s belongs', (key) => {
    expect(problemsOf({ [key]: 'public', on_http_request: [] })).toMatchObject([
      { pointer: `/${key}`, message: expect.stringContaining('an option of the endpoint') },
    ])
  })
})

describe('limits of documents', () => {
  const deny = { type: 'deny' }
  const rules = (count: number, rule: unknown) => ({
    on_http_request: Array.from({ length: count }, () => rule),
  })
  const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)])

  it.each([
    ['131,072 characters', ' '.repeat(131_073), 'ERR_NGROK_2221 '],
    ['200 rules', rules(201, { actions: [deny] }), 'ERR_NGROK_2264 '],
    [
      '50 expressions',
      rules(1, { expressions: Array(51).fill('true'), actions: [deny] }),
      'ERR_NGROK_2265 /on_http_request/0/expressions',
    ],
    [
      '50 actions',
      rules(1, { actions: Array(51).fill({ type: 'log', config: { metadata: {} } }) }),
      'ERR_NGROK_2265 /on_http_request/0/actions',
    ],
    [
      'a depth of 20 for a configuration',
      rules(1, { actions: [{ type: 'log', config: { metadata: { a: nested(19) } } }] }),
      'ERR_NGROK_2250 /on_http_request/0/actions/0/config',
    ],
  ])('are %s', (_, source, problem) => {
    expect(codesOf(source)).toEqual([problem])
  })

  it('let pass what is just within', () => {
    expect(codesOf(rules(200, { expressions: Array(3).fill('true'), actions: [deny] }))).toEqual([])
    const deep = { type: 'log', config: { metadata: { a: nested(18) } } }
    expect(codesOf(rules(1, { actions: [deep] }))).toEqual([])
  })
})

describe('texts that are a burden to read', () => {
  const texts: Record<string, string> = {
    'open brackets': '['.repeat(60_000),
    'closed brackets': '['.repeat(30_000) + ']'.repeat(30_000),
    'objects of JSON': `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`,
    'items of YAML': '- '.repeat(30_000),
    'keys of YAML': '? '.repeat(30_000),
    'mappings on a line': 'a: '.repeat(20_000),
    'indented mappings': Array.from({ length: 300 }, (_, at) => `${' '.repeat(at)}a:`).join('\n'),
  }

  it.each(Object.keys(texts))('are refused before they end the process: %s', (name) => {
    expect(problemsOf(texts[name])).toMatchObject([
      { message: expect.stringContaining('more than 100 levels') },
    ])
  })

  it.each([
    ['tags', '!!str '.repeat(10_000)],
    ['anchors', '&a '.repeat(20_000)],
    ['aliases', '*a '.repeat(20_000)],
  ])('are refused with their first mistake: %s', (_, text) => {
    expect(codesOf(text)).toEqual(['ERR_NGROK_2236 '])
  })

  it.each([
    [
      'fields that nobody knows',
      {
        type: 'deny',
        config: Object.fromEntries(Array.from({ length: 9_000 }, (_, at) => [`a${at}`, 1])),
      },
    ],
    ['entries of a wrong type', { type: 'restrict-ips', config: { allow: Array(9_000).fill(1) } }],
    [
      'headers of a wrong type',
      {
        type: 'add-headers',
        config: {
          headers: Object.fromEntries(Array.from({ length: 9_000 }, (_, at) => [`a${at}`, [1]])),
        },
      },
    ],
  ])('are told a hundred problems of: %s', (_, action) => {
    expect(problemsOf({ on_http_request: [{ actions: [action] }] })).toHaveLength(100)
  })
})

describe('an action that cannot be reached', () => {
  it('is a warning, since documents in use have it', () => {
    const source = { on_http_request: [{ actions: [{ type: 'deny' }, { type: 'deny' }] }] }
    expect(problemsOf(source)).toEqual([
      expect.objectContaining({
        pointer: '/on_http_request/0/actions/1',
        code: 'ERR_NGROK_2207',
        severity: 'warning',
      }),
    ])
  })
})
