import { describe, expect, it } from 'vitest'
import { ReadSecrets } from '../../../src/base/read-secrets.ts'
import { checkPolicy } from '../../../src/policy/check.ts'
import { PolicyError } from '../../../src/policy/document/problem.ts'
import type { PolicySecrets } from '../../../src/policy/exchange/policy-secrets.ts'
import { explainPolicy } from '../../../src/policy/explain.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import {
  compileExpression,
  createExchange,
  onRequest,
  PolicyBench,
  replyOf,
} from '../../helpers/policy-exchange.ts'

const VALUE = 'hunter2 "ü"/+ of the vault'
const USE = "secrets.get('site', 'api/key')"

/** Secrets of one vault. */
class Vault implements PolicySecrets {
  readonly values = new Map([['api/key', VALUE]])
  readonly read: PolicySecrets['read'] = ({ vault, name }) =>
    vault === 'site' ? this.values.get(name) : undefined
  readonly problemOf: PolicySecrets['problemOf'] = (secret) =>
    this.read(secret) === undefined
      ? { message: 'the vault has no such secret', isOnlyForNew: false }
      : undefined
}

function bench(policy: unknown, secrets: PolicySecrets = new Vault()): PolicyBench {
  return new PolicyBench(policy, { secrets })
}

describe('secrets.get', () => {
  it('has the current value, in expressions and in texts', async () => {
    const vault = new Vault()
    const headers = { 'x-key': `key \${${USE}}` }
    const tested = bench(onRequest('add-headers', { headers }, [`${USE} != ''`]), vault)
    vault.values.set('api/key', 'one')
    const first = await tested.request()
    vault.values.set('api/key', 'two')
    const second = await tested.request()
    expect(first.exchange.request?.headers.get('x-key')).toBe('key one')
    expect(second.exchange.request?.headers.get('x-key')).toBe('key two')
  })

  it('can be used in every phase', async () => {
    const log = [{ type: 'log', config: { metadata: { n: `\${size(${USE})}` } } }]
    const tested = bench({
      on_tcp_connect: [{ actions: log }],
      on_http_request: [{ actions: log }],
      on_http_response: [{ actions: log }],
    })
    await tested.connect()
    await tested.request()
    await tested.response()
    const logged = tested.captured.lines.filter(({ msg }) => msg === 'policy log')
    expect(logged.map(({ metadata }) => metadata)).toEqual(Array(3).fill({ n: VALUE.length }))
  })

  it('fails the request when the secret is gone', async () => {
    const vault = new Vault()
    const tested = bench(
      onRequest('add-headers', { headers: { 'x-key': interpolated(USE) } }),
      vault,
    )
    vault.values.clear()
    const { outcome } = await tested.request()
    expect(replyOf(outcome)).toMatchObject({ status: 500 })
    expect(tested.captured.text()).toContain('the secret site/api/key is not available')
  })

  it.each([
    ["secrets.get(vars.v, 'name')", 'needs two string literals'],
    ["secrets.get('a' + 'b', 'name')", 'needs two string literals'],
    ["['a'].exists(x, secrets.get(x, 'name') == '')", 'needs two string literals'],
    ["secrets.get(true ? 'a' : 'b', 'name')", 'needs two string literals'],
    ["secrets.get('vault')", 'does not accept (string)'],
    ["secrets.get('vault', 1)", 'does not accept (string, int)'],
    ["secrets.get('', 'name')", 'not a name of a vault or secret'],
    ["secrets.get('a b', 'name')", 'not a name of a vault or secret'],
    ["secrets.get('vault', 'a\\u0000')", 'not a name of a vault or secret'],
    ["secrets['vault']", 'unknown name secrets'],
    ["secrets.list('vault')", 'unknown function secrets.list()'],
    ["[1].all(secrets, secrets.get('a', 'b') == '')", 'cannot be used as a macro variable'],
  ])('refuses %s', (source, sentence) => {
    expect(() => compileExpression(source)).toThrow(sentence)
  })

  it('names the place of a secret that the policy cannot use', () => {
    const policy = onRequest('custom-response', {
      status_code: 200,
      body: interpolated("secrets.get('site', 'other')"),
    })
    const compile = () => compilePolicy(policy, { ...PARTS, secrets: new Vault() })
    expect(compile).toThrow(PolicyError)
    try {
      compile()
    } catch (error) {
      expect((error as PolicyError).problems).toMatchObject([
        {
          pointer: '/on_http_request/0/actions/0/config/body',
          code: 'ERR_NGROK_24009',
          message: "secrets.get('site', 'other') cannot be used: the vault has no such secret.",
        },
      ])
    }
  })

  it('tells all uses, also in rules that do not run', () => {
    const policy = {
      enabled: false,
      on_tcp_connect: [
        { expressions: ["secrets.get('a', 'b') == ''"], actions: [{ type: 'deny' }] },
      ],
      on_http_request: [
        {
          actions: [{ type: 'set-vars', config: { vars: [{ k: { deep: [interpolated(USE)] } }] } }],
        },
        { expressions: [`has(vars.k) || ${USE} == 'x'`], actions: [{ type: 'deny' }] },
      ],
    }
    const { usedSecrets } = compilePolicy(policy, PARTS)
    expect(usedSecrets).toEqual([
      { vault: 'a', name: 'b' },
      { vault: 'site', name: 'api/key' },
    ])
  })

  it('is known to the check on a device, for a gateway and for the hosted service', () => {
    const text = JSON.stringify(onRequest('basic-auth', { credentials: [`u:\${${USE}}`] }))
    expect(checkPolicy(text, { service: 'embedded' })).toEqual([])
    expect(checkPolicy(text, { service: 'hosted' })).toEqual([])
  })

  it('has no value in an explanation', async () => {
    const [told] = await explainPolicy(
      onRequest('set-vars', { vars: [{ key: interpolated(USE) }] }),
      {
        method: 'GET',
        url: new URL('https://h.example/'),
        headers: [],
        body: '',
        clientIp: '203.0.113.9',
        upstream: { status: 200, headers: [] },
      },
    )
    expect(told?.rules[0]?.actions[0]?.vars).toEqual({ key: '[secret site/api/key]' })
  })

  it('is paid for', () => {
    const exchange = createExchange()
    exchange.secrets = new Vault()
    compileExpression(`${USE} == ''`).evaluate(exchange)
    const { spent } = exchange.account
    compileExpression(`${USE} == '' && ${USE} == ''`).evaluate(exchange)
    expect(exchange.account.spent - spent).toBeGreaterThan(20)
  })
})

const { clock, captured } = bench(null)
const PARTS = { clock, log: captured.log }

describe('logs', () => {
  it.each([
    ['as it is', USE],
    ['in a longer text', `'a' + ${USE} + 'b'`],
    ['as JSON', `json.encode({'k': ${USE}})`],
    ['as JSON twice', `json.encode({'k': json.encode([${USE}])}).decodeJson().k`],
    ['in a URL', `url.escape(${USE})`],
    ['as base64', `base64.encode(bytes(${USE}))`],
    ['as part of base64', `base64.encode(bytes('user:' + ${USE}))`],
    ['in a list', `[${USE}]`],
    ['as a key', `{${USE}: 1}`],
  ])('have no secret %s', async (_form, source) => {
    const { captured } = await logged(source)
    expect(captured.text()).toContain('policy log')
    expect(leaks(captured.text())).toEqual([])
  })

  it('have no secret of a variable', async () => {
    const tested = bench({
      on_http_request: [
        { actions: [{ type: 'set-vars', config: { vars: [{ k: interpolated(USE) }] } }] },
        {
          actions: [
            {
              type: 'log',
              config: { metadata: { k: interpolated('vars.k'), again: [interpolated('vars')] } },
            },
          ],
        },
      ],
    })
    const { exchange } = await tested.request()
    expect(leaks(tested.captured.text())).toEqual([])
    expect(leaks(JSON.stringify(exchange.logged))).toEqual([])
  })

  it.each([
    ['expression', { expressions: [`int(${USE}) == 1`], actions: [{ type: 'deny' }] }],
    [
      'time zone',
      { expressions: [`timestamp(time.now).getHours(${USE}) == 1`], actions: [{ type: 'deny' }] },
    ],
    ['URL', { actions: [{ type: 'http-request', config: { url: interpolated(USE) } }] }],
    ['pattern', { expressions: [`'x'.matches('(' + ${USE})`], actions: [{ type: 'deny' }] }],
  ])('have no secret of a failed %s', async (_what, rule) => {
    const tested = bench({ on_http_request: [rule] })
    const { outcome } = await tested.request()
    expect(replyOf(outcome).status).toBe(500)
    expect(leaks(String(replyOf(outcome).body))).toEqual([])
    expect(tested.captured.text()).toContain('policy failed for a request')
    expect(leaks(tested.captured.text())).toEqual([])
  })
})

describe('ReadSecrets', () => {
  it('masks errors with their stacks and leaves other values as they are', () => {
    const secrets = new ReadSecrets()
    const error = new TypeError(`no ${VALUE}`)
    expect(secrets.maskError(error)).toBe(error)
    secrets.add(VALUE)
    const masked = secrets.maskError(error) as Error
    expect(masked.name).toBe('TypeError')
    expect(leaks(`${masked.message} ${masked.stack}`)).toEqual([])
    expect(secrets.maskJson({ a: [1, true, null, 'x'] })).toEqual({ a: [1, true, null, 'x'] })
  })

  it('masks a secret that contains another secret', () => {
    const secrets = new ReadSecrets()
    secrets.add('abc')
    secrets.add('xxabcxx')
    expect(secrets.mask('xxabcxx abc')).toBe('[secret] [secret]')
  })

  it('masks no mask again, however many values occur in it', () => {
    const secrets = new ReadSecrets()
    for (const value of ['e', '[', ']', 's', 'r', 'c', 't']) secrets.add(value)
    expect(secrets.mask('e'.repeat(100))).toBe('[secret]'.repeat(100))
    secrets.add('secret')
    expect(secrets.mask('a secret')).toBe('a [secret]')
  })

  it('masks values that overlap as a whole', () => {
    const secrets = new ReadSecrets()
    for (const value of ['abcd', 'cdef', 'efgh']) secrets.add(value)
    expect(secrets.mask('-abcdefgh-abcd')).toBe('-[secret]-[secret]')
  })
})

const interpolated = (source: string) => `\${${source}}`

async function logged(source: string) {
  const tested = bench(onRequest('log', { metadata: { k: `\${${source}}`, v: `-\${${source}}` } }))
  await tested.request()
  return tested
}

/** Traces of the value in any form. */
function leaks(text: string): string[] {
  const encoded = Buffer.from(VALUE).toString('base64')
  const parts = ['hunter2', 'of the vault', 'of%20the', 'of+the', encoded.slice(4, 20)]
  const shifted = Buffer.from(`user:${VALUE}`).toString('base64').slice(12, 28)
  return [...parts, shifted].filter((part) => text.includes(part))
}
