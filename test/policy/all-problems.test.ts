// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ACTIONS } from '../../src/policy/actions/all-actions.ts'
import { checkPolicy } from '../../src/policy/check.ts'
import { child, isWithin, PolicyError } from '../../src/policy/document/problem.ts'

import { PHASES } from '../../src/policy/phase.ts'
import { compilePolicy } from '../../src/policy/policy.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

type Fields = Record<string, unknown>
type Action = { type: unknown; config: Fields }
type Rule = { expressions: unknown[]; actions: Action[] } & Fields
type Document = Record<string, Rule[]>

/** One rule for each action in each phase where it can stand, with its example. */
function goodDocument(): Document {
  return Object.fromEntries(
    PHASES.map((phase) => [
      phase,
      Array.from(ACTIONS.values())
        .filter(({ phases }) => phases.includes(phase))
        .map(({ type, example }) => ({
          expressions: ["conn.client_ip != ''"],
          actions: [{ type, config: structuredClone(example) as Fields }],
        })),
    ]),
  )
}

/** What can be wrong at one place, and nothing to do with any other. */
interface Fault {
  /** Faults of which one stands within the other are not injected together. */
  readonly place: string
  /** Injects it and answers the pointer that has to be reported. */
  readonly inject: (document: Document) => string
}

/** Paths in the examples whose texts are computed, beside `headers`. */
const TEMPLATES: Readonly<Record<string, readonly string[]>> = {
  'basic-auth': ['credentials/0'],
  'custom-response': ['body'],
  'forward-internal': ['url'],
  'http-request': ['url', 'body', 'query_params/0/value'],
  'jwt-validation': ['issuer/allow_list/0/value', 'http/tokens/0/name', 'http/tokens/0/prefix'],
  log: ['metadata/why'],
  redirect: ['from', 'to'],
  'request-body-find-replace': ['replacements/0/from', 'replacements/0/to'],
  'response-body-find-replace': ['replacements/0/from', 'replacements/0/to'],
  'restrict-ips': ['allow/0', 'deny/0'],
  'set-vars': ['vars/0/tier'],
  'url-rewrite': ['from', 'to'],
  'verify-webhook': ['secret'],
}
const EXPRESSIONS: Readonly<Record<string, string>> = {
  'http-request': 'retry_condition',
  'rate-limit': 'bucket_key/0',
}
/** Values that are of the right type, and mean nothing. */
const MEANINGLESS: readonly (readonly [type: string, path: string, value: unknown])[] = [
  ['basic-auth', 'credentials/0', 'name:short'],
  ['circuit-breaker', 'window_duration', '5 lightyears'],
  ['circuit-breaker', 'error_threshold', 7],
  ['compress-response', 'algorithms/0', 'zstd'],
  ['custom-response', 'status_code', 999],
  ['forward-internal', 'url', 'ftp://x'],
  ['http-request', 'url', 'no url'],
  ['http-request', 'timeout', '9h'],
  ['jwt-validation', 'jws/allowed_algorithms/0', 'none'],
  ['rate-limit', 'capacity', 0],
  ['rate-limit', 'rate', '65s'],
  ['redirect', 'from', '('],
  ['remove-headers', 'headers/0', 'host'],
  ['restrict-ips', 'allow/0', '300.1.1.1'],
  ['url-rewrite', 'from', '['],
  ['verify-webhook', 'provider', 'nobody'],
]

function allFaults(): Fault[] {
  const faults: Fault[] = [{ place: '/on_nothing', inject: setter('/on_nothing', []) }]
  for (const [phase, rules] of Object.entries(goodDocument())) {
    const list = child('', phase)
    faults.push(appender(list, 5), appender(list, { actions: [] }, '/actions'))
    for (const [index, rule] of rules.entries()) faults.push(...faultsOf(child(list, index), rule))
  }
  return faults
}

function faultsOf(at: string, { actions }: Rule): Fault[] {
  const [expressions, list] = [`${at}/expressions`, `${at}/actions`]
  return [
    setting(`${at}/name`, 7),
    setting(`${at}/nonsense`, 7),
    setting(expressions, 'true'),
    setting(`${expressions}/0`, "nope == 'x'"),
    appender(expressions, 5),
    appender(expressions, 'conn.client_ip'),
    appender(expressions, 'conn.client_ip =='),
    appender(list, 5),
    appender(list, { type: 'teleport' }, '/type'),
    appender(list, { config: {} }, '/type'),
    appender(list, { type: 'log', config: { metadata: {} }, cofnig: {} }, '/cofnig'),
    ...actions.flatMap((action, index) => faultsOfAction(child(list, index), action)),
  ]
}

function faultsOfAction(at: string, { type, config }: Action): Fault[] {
  const name = String(type)
  const inside = `${at}/config`
  const fields = Object.entries(config).map(([key, value]) =>
    setting(child(inside, key), typeof value === 'number' ? 'many' : 7),
  )
  const templates = (TEMPLATES[name] ?? []).map((path) =>
    setting(`${inside}/${path}`, 'a ${nope} b'),
  )
  const headers = ['add-headers', 'custom-response', 'redirect', 'http-request'].includes(name)
    ? [
        setting(`${inside}/headers/x-injected`, '${req.nope}'),
        setting(`${inside}/headers/x-list`, ['a']),
        setting(`${inside}/headers/no name`, 'x'),
        setting(`${inside}/headers/content-length`, '1'),
      ]
    : []
  const expression = EXPRESSIONS[name]
  const { config: schema } = ACTIONS.get(name) ?? {}
  const needed = Object.keys(config).filter((key) => {
    const { [key]: _, ...others } = config
    return schema?.safeParse(others).success === false
  })
  return [
    ...needed.map((key) => setting(child(inside, key), undefined)),
    setting(inside, 'text'),
    setting(`${inside}/nonsense`, 7),
    ...fields,
    ...templates,
    ...headers,
    ...(expression ? [setting(`${inside}/${expression}`, '1 +')] : []),
    ...MEANINGLESS.filter(([owner]) => owner === name).map(([, path, value]) =>
      setting(`${inside}/${path}`, value),
    ),
  ]
}

function setting(pointer: string, value: unknown): Fault {
  return { place: pointer, inject: setter(pointer, value) }
}

function setter(pointer: string, value: unknown): (document: Document) => string {
  return (document) => {
    const steps = pointer.split('/').slice(1)
    const last = steps.pop() ?? ''
    const parent = steps.reduce<unknown>((node, step) => (node as Fields)[step], document) as Fields
    parent[last] = value
    return pointer
  }
}

/** Appends to a list; several may. */
function appender(list: string, value: unknown, within = ''): Fault {
  const steps = list.split('/').slice(1)
  return {
    place: `${list}/+`,
    inject: (document) => {
      const items = steps.reduce<unknown>((node, step) => (node as Fields)[step], document)
      const index = (items as unknown[]).push(value) - 1
      return `${list}/${index}${within}`
    },
  }
}

const FAULTS = allFaults()
const isAppended = (place: string) => place.endsWith('/+')
const conflict = (a: string, b: string) =>
  isAppended(a) && a === b ? false : isWithin(a, [b]) || isWithin(b, [a])

function independent(chosen: readonly Fault[]): Fault[] {
  const kept: Fault[] = []
  for (const fault of chosen) {
    if (!kept.some(({ place }) => conflict(place, fault.place))) kept.push(fault)
  }
  return kept
}

const errorsOf = (text: string) =>
  checkPolicy(text, { service: 'embedded' }).filter(({ severity }) => severity === 'error')

const OPTIONS = { clock: new ManualClock(), log: captureLog('silent').log }

/** The pointers of the errors for which the gateway would not take a document. */
function refusedBy(document: unknown): string[] {
  try {
    compilePolicy(document, OPTIONS)
    return []
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error
    const errors = error.problems.filter(({ severity }) => severity === 'error')
    return errors.map(({ pointer }) => pointer)
  }
}

const faults = fc
  .uniqueArray(fc.nat(FAULTS.length - 1), { minLength: 1, maxLength: 12 })
  .map((indexes) => independent(indexes.map((index) => FAULTS[index] as Fault)))

describe('problems of a document', () => {
  it('has none to begin with', () => {
    expect(errorsOf(JSON.stringify(goodDocument()))).toEqual([])
    expect(FAULTS.length).toBeGreaterThan(500)
  })

  it('are found each by itself, and nothing else is', () => {
    for (const { inject } of FAULTS) {
      const document = goodDocument()
      const pointer = inject(document)
      expect(refusedBy(document)).toEqual([pointer])
    }
  })

  it('are all found at once, in the order of the document, and nothing else is', () => {
    fc.assert(
      fc.property(faults, fc.boolean(), (chosen, isPretty) => {
        const document = goodDocument()
        const injected = chosen.map(({ inject }) => inject(document))
        const problems = errorsOf(JSON.stringify(document, undefined, isPretty ? 2 : 0))
        expect(problems.map(({ pointer }) => pointer).sort()).toEqual(injected.sort())
        const places = problems.map(({ position: { line, column } }) => line * 1e6 + column)
        expect(places).toEqual([...places].sort((a, b) => a - b))
      }),
      { seed: 20_260_815, numRuns: 100 },
    )
  })

  it('are the same for the gateway, which gets them in one error', () => {
    fc.assert(
      fc.property(faults, (chosen) => {
        const document = goodDocument()
        for (const { inject } of chosen) inject(document)
        const text = JSON.stringify(document)
        const problems = errorsOf(text)
        expect(refusedBy(JSON.parse(text))).toEqual(problems.map(({ pointer }) => pointer))
      }),
      { seed: 4, numRuns: 50 },
    )
  })

  it('do not hide what is in the same configuration', () => {
    const config = {
      name: 5,
      algorithm: 'fixed',
      capcity: 30,
      rate: '65s',
      bucket_key: ['req.nope', '1 +', "getReqHeader('x')[0]"],
    }
    const document = { on_http_request: [{ actions: [{ type: 'rate-limit', config }] }] }
    expect(errorsOf(JSON.stringify(document)).map(({ message }) => message)).toEqual([
      'name must be text.',
      'algorithm must be sliding_window.',
      'capcity is not a field of this action. Did you mean capacity?',
      'rate must be a multiple of ten seconds.',
      'The expression `req.nope` is not valid: unknown name req.nope (at character 1).',
      expect.stringMatching(/^The expression `1 \+` is not valid/),
    ])
  })

  it('do not hide each other in one expression or text', () => {
    const document = {
      on_http_request: [
        {
          expressions: ["req.methd == 'GET' && getReqHeadr('x') == [] || 1 + 'a' == 2"],
          actions: [{ type: 'custom-response', config: { body: '${nope} and ${req.host.x} ${b' } }],
        },
        { actions: [{ type: 'custom-response', config: { body: '${nope} and ${req.host.x}' } }] },
      ],
    }
    const problems = errorsOf(JSON.stringify(document))
    expect(problems.map(({ message }) => message.replace(/^.*is not valid: /, ''))).toEqual([
      'unknown name req.methd: did you mean req.method? (at character 1).',
      'unknown function getReqHeadr(): did you mean getReqHeader()? (at character 23).',
      'the operator + does not accept (int, string) (at character 51).',
      'unknown name nope (at character 1).',
      'a string has no field x (at character 9).',
      'An interpolation is not closed. Add the closing brace.',
      'unknown name nope (at character 1).',
      'a string has no field x (at character 9).',
    ])
  })

  it.each([
    ["req.host.startWith('a')", 'did you mean startsWith()?'],
    ["req.host.starts_with('a')", 'did you mean startsWith()?'],
    ["json.decod('{}').a", 'did you mean json.decode()?'],
    ["getreqheader('a') == []", "write getReqHeader('a')"],
    ['conn.clientip == "a"', 'did you mean conn.client_ip?'],
    ["req.cookies['a'][0].valu == ''", 'a cookie has no field valu: did you mean value?'],
    ["getReqCookie('a')['domain'] == ''", 'a cookie has no field domain'],
    ['conn.tls.client.extensions.exists(e, e.oid == "1")', 'an extension has no field oid'],
    ["req.headers['a'].exist(v, v == 'a')", 'did you mean exists()?'],
  ])('suggest what was meant: %s', (expression, hint) => {
    const rule = { expressions: [expression], actions: [{ type: 'deny' }] }
    const [problem] = errorsOf(JSON.stringify({ on_http_request: [rule] }))
    expect(problem?.message).toContain(hint)
  })

  it('are looked for in all that is within a limit, and the limit is named too', () => {
    const keys = ['nope', ...Array(10).fill('conn.client_ip')]
    const headers = Object.fromEntries(
      Array.from({ length: 11 }, (_, at) => [`x-${at}`, '${nope}']),
    )
    const document = {
      on_http_request: [
        {
          expressions: ['nope', ...Array(50).fill('true')],
          actions: [
            {
              type: 'rate-limit',
              config: {
                name: 'x',
                algorithm: 'sliding_window',
                capacity: 1,
                rate: '60s',
                bucket_key: keys,
              },
            },
            { type: 'add-headers', config: { headers } },
            ...Array(49).fill({ type: 'deny' }),
          ],
        },
      ],
    }
    const pointers = errorsOf(JSON.stringify(document)).map(({ pointer }) =>
      pointer.replace('/on_http_request/0/', ''),
    )
    expect(pointers).toEqual([
      'expressions',
      'expressions/0',
      'actions',
      'actions/0/config/bucket_key',
      'actions/0/config/bucket_key/0',
      'actions/1/config/headers',
      ...Object.keys(headers)
        .slice(0, 10)
        .map((name) => `actions/1/config/headers/${name}`),
    ])
  })

  it('are not made of others: what a bad set-vars would have set may be read', () => {
    const actions = [
      { type: 'set-vars', config: { vars: { tier: 'gold' } } },
      { type: 'log', config: { metadata: { tier: '${vars.tier}' } } },
      { type: 'rate-limt', config: {} },
      { type: 'log', config: { metadata: { l: '${actions.ngrok.rate_limit.limited}' } } },
    ]
    const document = { on_http_request: [{ actions }] }
    expect(errorsOf(JSON.stringify(document)).map(({ message }) => message)).toEqual([
      'vars must be a list. Begin each item with a dash.',
      'Unknown action rate-limt: did you mean rate-limit?',
    ])
  })

  it('are found in a phase whose name is mistyped, and beside a repeated key', () => {
    const text = `on_http_reqest:
  - expressions: [req.nope]
    actions: [{type: deny}]
on_http_response:
  - name: one
    name: two
    expressions: [res.nope]
    actions: [{type: log, config: {metadata: {}}}]
`
    expect(
      errorsOf(text).map(({ position: { line, column }, pointer }) => [line, column, pointer]),
    ).toEqual([
      [1, 1, '/on_http_reqest'],
      [2, 19, '/on_http_reqest/0/expressions/0'],
      [6, 5, '/on_http_response/0/name'],
      [7, 19, '/on_http_response/0/expressions/0'],
    ])
  })

  it('begin with ! in YAML, where a text has to stand in quotes then', () => {
    const text = `on_http_request:
  - expressions:
      - !('x-a' in req.headers)
      - !hasReqHeader('a') && req.nope
      - !!str true
    actions: [{type: deny}]
`
    expect(
      errorsOf(text).map(({ position: { line, column }, message }) => [line, column, message]),
    ).toEqual([
      [3, 9, 'A YAML string that starts with ! must be in quotes.'],
      [4, 9, 'A YAML string that starts with ! must be in quotes.'],
      [4, 31, expect.stringContaining('unknown name req.nope')],
    ])
  })

  it.each([
    ['rule', { expr: [] }, 'expr is not a field of a rule. Did you mean expressions?'],
    ['rule', { when: [] }, 'when is not a field of a rule. Did you mean expressions?'],
    [
      'action',
      { status_code: 404 },
      'status_code is not a field of an action. Put fields of the action below config.',
    ],
    ['config', { status: 404 }, 'status is not a field of this action. Did you mean status_code?'],
    ['config', { size: 1 }, 'size is not a field of this action. Known fields: status_code.'],
  ])('name the fields that a %s has: %j', (place, fields, sentence) => {
    const config = place === 'config' ? { config: fields } : {}
    const action = { type: 'deny', ...config, ...(place === 'action' && fields) }
    const rule = { actions: [action], ...(place === 'rule' && fields) }
    const [problem] = errorsOf(JSON.stringify({ on_http_request: [rule] }))
    expect(problem?.message).toBe(sentence)
  })

  it('in lists below a mistaken field of a rule are shown in the same run', () => {
    const text = 'on_http_request:\n  - when: [1 +]\n    action:\n      - type: denny\n'
    expect(errorsOf(text).map(({ position, message }) => [position.line, message])).toEqual([
      [2, 'when is not a field of a rule. Did you mean expressions?'],
      [2, expect.stringMatching(/^The expression `1 \+` is not valid/)],
      [3, 'action is not a field of a rule. Did you mean actions?'],
      [4, 'Unknown action denny: did you mean deny?'],
    ])
  })

  it('are a hundred at most, and the last one says how many are not told', () => {
    const rule = { expressions: ['nope'], actions: [{ type: 'deny', config: { status: 1 } }] }
    const warned = { actions: [{ type: 'deny' }, { type: 'deny' }] }
    const document = { on_http_request: [...Array(20).fill(warned), ...Array(120).fill(rule)] }
    const problems = checkPolicy(JSON.stringify(document), { service: 'embedded' })
    expect(problems).toHaveLength(100)
    expect(problems.every(({ severity }) => severity === 'error')).toBe(true)
    expect(problems.at(-1)?.message).toMatch(/ 160 more problems are not shown\.$/)
  })
})
