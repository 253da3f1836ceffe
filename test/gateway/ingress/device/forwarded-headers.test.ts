import { describe, expect, it } from 'vitest'
import {
  requestFields,
  responseFields,
} from '../../../../src/gateway/ingress/device/forwarded-headers.ts'
import { fromPeer } from '../../../../src/gateway/ingress/device/peer-forward.ts'
import {
  encodeHead,
  formatFields,
  lengthOfFields,
} from '../../../../src/gateway/ingress/syntax/message-fields.ts'
import { parseRequestHead } from '../../../../src/gateway/ingress/syntax/request-head.ts'
import { parseResponseHead } from '../../../../src/gateway/ingress/syntax/response-head.ts'

const FORWARDED = [
  'x-forwarded-for',
  '1.2.3.4',
  'x-forwarded-proto',
  'https',
  'x-forwarded-host',
  'a',
  'x-real-ip',
  '1.2.3.4',
  'forwarded',
  'for=1.2.3.4;host=a;proto=https',
]

function forwarded(...fields: string[]): readonly string[] {
  const head = parseRequestHead({ line: 'GET / HTTP/1.1', fields: ['Host', 'a', ...fields] })
  return requestFields(head, '1.2.3.4', 'https')
}

function passed(status: number, ...fields: string[]): readonly string[] {
  return responseFields(parseResponseHead({ line: `HTTP/1.1 ${status}`, fields }, 'GET'))
}

describe('requestFields', () => {
  it('keeps order, case and repetition of what it passes on', () => {
    expect(forwarded('X-B', '1', 'x-a', '2', 'X-B', '3')).toEqual([
      ...['Host', 'a', 'X-B', '1', 'x-a', '2', 'X-B', '3'],
      ...FORWARDED,
    ])
  })

  it.each([
    ['Connection', 'close'],
    ['Keep-Alive', 'timeout=5'],
    ['Proxy-Connection', 'keep-alive'],
    ['TE', 'gzip'],
    ['Upgrade', 'websocket'],
    ['HTTP2-Settings', 'AA'],
  ])('removes %s, which is for this hop', (name, value) => {
    expect(forwarded(name, value)).toEqual(['Host', 'a', ...FORWARDED])
  })

  it('removes what Connection names, but never what frames or routes the message', () => {
    expect(
      forwarded(
        'Connection',
        'X-Hop, host',
        'X-Hop',
        '1',
        'connection',
        'content-length',
        'Content-Length',
        '0',
      ),
    ).toEqual(['Host', 'a', 'Content-Length', '0', ...FORWARDED])
  })

  it('puts the client behind the proxies that are named already', () => {
    expect(forwarded('X-Forwarded-For', '9.9.9.9', 'x-forwarded-for', '8.8.8.8')).toEqual([
      ...['Host', 'a', 'x-forwarded-for', '9.9.9.9, 8.8.8.8, 1.2.3.4'],
      ...FORWARDED.slice(2),
    ])
  })

  it('does not believe what a client says of scheme and host', () => {
    expect(forwarded('X-Forwarded-Proto', 'gopher', 'X-Forwarded-Host', 'evil')).toEqual([
      ...['Host', 'a'],
      ...FORWARDED,
    ])
  })

  it('does not believe what a client says of its address', () => {
    const said = ['X-Real-IP', '10.0.0.1', 'Forwarded', 'for=10.0.0.1;by=secret', 'forwarded', '']
    expect(forwarded(...said)).toEqual(['Host', 'a', ...FORWARDED])
  })

  it('quotes in Forwarded what is no token', () => {
    const head = parseRequestHead({ line: 'GET / HTTP/1.1', fields: ['Host', 'a.test:8080'] })
    expect(requestFields(head, '2001:db8::1', 'http').slice(-4)).toEqual([
      ...['x-real-ip', '2001:db8::1'],
      ...['forwarded', 'for="[2001:db8::1]";host="a.test:8080";proto=http'],
    ])
  })

  it('says a length as a plain number, which an old server does not take for an octal one', () => {
    expect(forwarded('Content-Length', '010').slice(2, 4)).toEqual(['Content-Length', '10'])
  })

  it('lets trailers be asked for, and an upgrade', () => {
    expect(forwarded('TE', 'gzip, trailers;q=0.5').slice(-2)).toEqual(['TE', 'trailers'])
    expect(
      forwarded('Connection', 'keep-alive, Upgrade', 'Upgrade', 'websocket').slice(-4),
    ).toEqual([...['Connection', 'Upgrade', 'Upgrade', 'websocket']])
  })
})

describe('responseFields', () => {
  it('removes what is for the hop to the device, and the code of the gateway', () => {
    expect(
      passed(
        200,
        ...[
          'Server',
          'x',
          'Connection',
          'keep-alive, X-Hop',
          'X-Hop',
          '1',
          'Keep-Alive',
          'timeout=5',
        ],
        ...['NGROK-Error-Code', 'ERR_NGROK_1', 'Upgrade', 'h2c', 'Content-Length', '0'],
      ),
    ).toEqual(['Server', 'x', 'Content-Length', '0'])
  })

  it('removes a length where there can be no body, and keeps it where it informs', () => {
    expect(passed(204, 'Content-Length', '0')).toEqual([])
    expect(passed(103, 'Content-Length', '0', 'Link', 'x')).toEqual(['Link', 'x'])
    expect(passed(304, 'Content-Length', '7')).toEqual(['Content-Length', '7'])
  })

  it('keeps the protocol that a switch names', () => {
    expect(passed(101, 'Connection', 'upgrade', 'Upgrade', 'websocket')).toEqual([
      ...['connection', 'Upgrade', 'Upgrade', 'websocket'],
    ])
  })
})

describe('heads that recur', () => {
  const fields = ['Host', 'a', 'Content-Length', '007', 'Connection', 'Upgrade', 'Upgrade', 'echo']
  const request = (version: string) =>
    parseRequestHead({ line: `POST / HTTP/${version}`, fields, recurs: true })
  const response = (status: number) =>
    parseResponseHead({ line: `HTTP/1.1 ${status}`, fields: OF_SERVICE, recurs: true }, 'GET')
  const OF_SERVICE = ['Content-Length', '2', 'ngrok-error-code', 'ERR_NGROK_1']

  it('are rewritten once', () => {
    const first = requestFields(request('1.1'), '1.2.3.4', 'https')
    expect(requestFields(request('1.1'), '1.2.3.4', 'https')).toBe(first)
    expect(formatFields(first)).toBe(formatFields([...first]))
    expect(lengthOfFields(first)).toBe(formatFields(first).length)
    expect(lengthOfFields([...first])).toBe(formatFields(first).length)
    expect(responseFields(response(200))).toBe(responseFields(response(200)))
  })

  it('are encoded as one that does not recur, whatever start lines come before', () => {
    const kept = requestFields(request('1.1'), '1.2.3.4', 'https')
    const [a, b, long] = [
      'GET /a HTTP/1.1',
      'GET /\xe4 HTTP/1.1',
      `GET /${'x'.repeat(2_000)} HTTP/1.1`,
    ]
    for (const line of [a, a, a, b, a, b, b, b, long, long, long, a, a]) {
      expect(encodeHead(line, kept)).toEqual(encodeHead(line, [...kept]))
    }
    expect(encodeHead(a, kept)).toBe(encodeHead(a, kept))
    // A long start line is not kept.
    const [, second, third] = [long, long, long].map((line) => encodeHead(line, kept))
    expect(third).not.toBe(second)
  })

  it.each([
    ['1.1', '1.2.3.4', 'http'],
    ['1.0', '1.2.3.4', 'https'],
    ['1.1', '1.2.3.5', 'https'],
  ] as const)('are rewritten again for HTTP/%s from %s by %s', (version, ip, scheme) => {
    requestFields(request('1.1'), '1.2.3.4', 'https')
    const fresh = { ...request(version), fields: [...fields], recurs: false }
    expect(requestFields(request(version), ip, scheme)).toEqual(requestFields(fresh, ip, scheme))
  })

  it.each([
    [204, false],
    [200, true],
  ])('are rewritten again for status %i, of a gateway: %s', (status, isOfGateway) => {
    responseFields(response(200))
    const fresh = { ...response(status), fields: [...OF_SERVICE], recurs: false }
    const expected = responseFields(fresh, isOfGateway)
    expect(responseFields(response(status), isOfGateway)).toEqual(expected)
  })

  it('do not recur where each head gets an array of its own', () => {
    const fields = ['peer-http', '1.1', 'Host', 'a']
    const head = parseRequestHead({ line: 'GET / HTTP/1.1', fields, recurs: true })
    expect(fromPeer(head)).toMatchObject({ fields: ['Host', 'a'], recurs: false })
  })
})
