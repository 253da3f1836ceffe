import { X509Certificate } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ConnectionCertificate } from '../../src/gateway/ingress/common/connection-facts.ts'
import { checkPolicy } from '../../src/policy/check.ts'
import { PolicyError } from '../../src/policy/document/problem.ts'
import {
  EvaluationError,
  ExpressionProblem,
} from '../../src/policy/expression/expression-problem.ts'
import { compilePolicy } from '../../src/policy/policy.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { createCertificate } from '../helpers/policy-certificate.ts'
import { compileExpression, createExchange } from '../helpers/policy-exchange.ts'

const EXPRESSIONS = 3_000
const DOCUMENTS = 700

/** Errors that depend on what a request brings; everything else a check could have seen. */
const BY_THE_REQUEST = [
  /so there is no item|has no such key|unresolved attribute/,
  /the (?:request|response) has no/,
  /not JSON|not base64|not a URL|invalid percent escape|not a time zone|not a valid RE2 expression/,
  /Cannot convert .* to a BigInt|overflow|divisor is 0|does not fit| is not a|, not a/,
  /takes too long|a string that is too long/,
  /outside a list|only numbers, strings or booleans|is not a string|accepts 0 to/,
  /Unable to convert string .* to bool|decode bytes/,
  /unsupported key type|map key conflict/,
  /for format string|formatting clause/,
]
/** Values whose type is known only when there is one. */
const UNTYPED =
  /json|Json|vars|ookie|dyn\(|null|\?|\[|\{|actions|parse|slice|sort|flatten|distinct|map\(|filter\(/

const CORPUS = [
  "req.method == 'GET' && conn.client_ip.startsWith('10.')",
  "!('authorization' in req.headers) || req.headers['authorization'].exists(v, v.startsWith('Bearer '))",
  "getReqHeader('tier').exists(v, v.matches('(?i)bronze')) ? 1 : 2",
  "inCidrRange(conn.client_ip, '203.0.113.0/24') && req.url.path.size() < 100",
  "req.url.query_params['q'].map(v, v.lowerAscii()).filter(v, v != '').join(',')",
  'json.decode(\'{"a": [1, 2, {"b": null}]}\').a[2].b == null',
  "timestamp(time.now).getHours('Europe/Berlin') >= 8 && duration('90s') > duration('1m')",
  "vars.v == 'gold' || actions.ngrok.rate_limit.limited || actions.svc.basic_auth.credentials.authorized",
  "has(req.content_length) && req.content_length > 1024 && int('42') % 5 == 2",
  "req.cookies['sid'][0].value.sha256() == hash.md5('x', 'base64')",
  "lists.range(5).map(i, i * 2).sort() == [0, 2, 4, 6, 8] && {'a': 1}['a'] == 1",
  "req.host + ':' + string(conn.server_port) == '%s:%d'.format([req.host, conn.server_port])",
  "conn.tls.client.signature_algorithm == 'SHA256-RSA' || conn.tls.server.signature_algorithm.startsWith('EC')",
  "conn.tls.client.extensions.exists(e, e.id == '2.5.29.17' && !e.critical && e.value.size() > 2)",
  "has(conn.tls.server.extensions) && base64.encode(conn.tls.server.extensions[0].value) != ''",
  "has(req.ts.body_received) && req.ts.body_received - req.ts.header_received < duration('5s')",
  "conn.k8s.pod.metadata.name == '' && size(conn.k8s.pod.metadata.annotations) == 0",
  '[1, 2.0, 3u].exists(n, n > 2) && b\'abc\'.size() == 3 && r\'\\d\' != """x"""',
]
const PIECES = [
  ...['(', ')', '[', ']', '{', '}', ',', '.', '!', '-', '+', '*', '/', '%', '?', ':', '&&', '||'],
  ...['==', '<', 'in', "'", '"', '\\', '${', '0', '1', '1.5', '9223372036854775808', "''", 'true'],
  ...[
    'null',
    'req',
    'req.headers',
    'vars',
    'x',
    'size',
    '.map(x, x)',
    '.all(x, x)',
    '[0]',
    'ü',
    '\n',
  ],
  ...['has(', 'dyn(', 'type(', '.size()', "['a']", 'constructor', '__proto__', '@in', '1u', "b'a'"],
]

const FIXTURES = join(import.meta.dirname, 'fixtures')
const textsOf = (kind: string) =>
  readdirSync(join(FIXTURES, kind)).map((name) => readFileSync(join(FIXTURES, kind, name), 'utf8'))
const GOOD = textsOf('valid')
const TEXTS = [...GOOD, ...textsOf('invalid')]
const TEXT_PIECES = [
  ...PIECES,
  ': ',
  '- ',
  '  ',
  '#',
  '&a',
  '*a',
  '|',
  '60s',
  '429',
  '[]',
  '{}',
  '"a": 1,',
]

let state = 20_260_815
function random(below: number): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
  return Math.floor((state / 2 ** 32) * below)
}
const pick = <T>(items: readonly T[]): T => items[random(items.length)] as T

/** Cuts, doubles, swaps and plants pieces. */
function mutate(text: string, others: readonly string[], pieces: readonly string[]): string {
  let result = text
  for (let times = 1 + random(3); times > 0; times -= 1) {
    const [at, length] = [random(result.length + 1), random(12)]
    const [head, cut, tail] = [
      result.slice(0, at),
      result.slice(at, at + length),
      result.slice(at + length),
    ]
    switch (random(6)) {
      case 0:
        result = head + tail
        break
      case 1:
        result = head + cut + cut + tail
        break
      case 2:
        result = tail + cut + head
        break
      case 3:
        result = head + pick(others).slice(random(40), 40 + random(40)) + tail
        break
      default:
        result = head + pick(pieces) + cut + tail
    }
  }
  return result
}

const certificate = new ConnectionCertificate(
  new X509Certificate(
    await createCertificate({ name: 'CN=a', dns: ['a.example'], ip: [], email: [], url: [] }),
  ),
)

const fullExchange = () =>
  createExchange({
    method: 'POST',
    url: 'https://device.example.com/a/b?q=1&q=x',
    headers: [
      'Tier',
      'Bronze',
      'Cookie',
      'sid=abc',
      'Content-Length',
      '2048',
      'Authorization',
      'Bearer x',
    ],
    bodyReceivedAt: Date.UTC(2030, 0, 1, 0, 0, 2),
    connection: {
      tls: {
        version: 'TLSv1.3',
        cipherSuite: 'TLS_AES_128_GCM_SHA256',
        serverName: 'device.example.com',
        alpn: '',
        clientCertificate: certificate,
        serverCertificate: certificate,
      },
    },
  })
/** The least that a request can have: no TLS, nor a body that has come. */
const bareExchange = () => createExchange()

/** True when it runs; refused, or failed for a reason that the request brought, it is false. */
function runs(source: string): boolean {
  try {
    const expression = compileExpression(source)
    try {
      expression.evaluate(bareExchange())
    } catch (error) {
      if (!(error instanceof EvaluationError)) throw error
    }
    expression.evaluate(fullExchange())
    return true
  } catch (error) {
    if (error instanceof ExpressionProblem) return false
    if (!(error instanceof EvaluationError)) throw new Error(`broke: ${source}`, { cause: error })
    const { message } = error
    const isUntyped =
      /no matching overload|type mismatch|is not a boolean/.test(message) && UNTYPED.test(source)
    const isFair = isUntyped || BY_THE_REQUEST.some((reason) => reason.test(message))
    if (!isFair) throw new Error(`accepted, but failed with ${message}: ${source}`)
    return false
  }
}

describe('mutated expressions', () => {
  it('are refused, or run, or fail for a reason that the request brought', () => {
    let accepted = 0
    for (let round = 0; round < EXPRESSIONS; round += 1) {
      if (runs(mutate(pick(CORPUS), CORPUS, PIECES))) accepted += 1
    }
    expect(accepted).toBeGreaterThan(EXPRESSIONS / 50)
  })
})

describe('mutated documents', () => {
  it('are refused, or run', async () => {
    const { log } = captureLog('silent')
    const clock = new ManualClock()
    let accepted = 0
    for (let round = 0; round < DOCUMENTS; round += 1) {
      const text = mutate(pick(GOOD), TEXTS, TEXT_PIECES)
      try {
        const policy = compilePolicy(text, { clock, log })
        void policy.onTcpConnect(createExchange())
        void policy.onHttpRequest(createExchange())
        void policy.onHttpResponse(createExchange({ status: 200 }))
        accepted += 1
      } catch (error) {
        if (!(error instanceof PolicyError)) throw new Error(`broke: ${text}`, { cause: error })
        expect(error.problems.every(({ code }) => /^ERR_NGROK_\d+$/.test(code))).toBe(true)
      }
      const lines = text.split('\n').length
      for (const { position } of checkPolicy(text, { service: 'embedded' })) {
        expect(position.line).toBeLessThanOrEqual(lines)
      }
    }
    expect(accepted).toBeGreaterThan(DOCUMENTS / 50)
  })
})
