import { describe, expect, it } from 'vitest'
import {
  ExchangeLog,
  MAX_BODY_BYTES,
  MAX_BYTES,
  MAX_EXCHANGES,
  RecordedBody,
} from '../../../src/agent/inspection/recorded-exchange.ts'

function begin(log: ExchangeLog, bodyBytes = 0) {
  const exchange = log.begin({
    startedAt: 0,
    replayOf: undefined,
    request: { method: 'POST', target: '/', httpVersion: '1.1', fields: [['host', 'a']] },
  })
  exchange.request.body.add(Buffer.alloc(bodyBytes, 'x'))
  return exchange
}

describe('ExchangeLog', () => {
  it('holds a bounded number, the newest', () => {
    const log = new ExchangeLog()
    for (let n = 0; n < MAX_EXCHANGES + 5; n += 1) begin(log)
    const numbers = log.list().map(({ number }) => number)
    expect(numbers).toEqual(Array.from({ length: MAX_EXCHANGES }, (_, at) => at + 6))
    expect([log.find(5), log.find(6)?.number, log.last]).toEqual([undefined, 6, MAX_EXCHANGES + 5])
  })

  it('holds a bounded number of bytes, whatever comes', () => {
    const log = new ExchangeLog()
    for (let n = 0; n < MAX_EXCHANGES; n += 1) begin(log, 10 * MAX_BODY_BYTES)
    const kept = log.list().reduce((sum, { request }) => sum + request.body.bytes.length, 0)
    expect(kept).toBeLessThanOrEqual(MAX_BYTES)
    expect(kept).toBeGreaterThan(MAX_BYTES / 2)
    expect(log.list().at(-1)?.request.body).toMatchObject({ totalBytes: 10 * MAX_BODY_BYTES })
  })

  it('lets go of what has made room, also while it goes on', () => {
    const log = new ExchangeLog()
    const first = begin(log)
    for (let n = 0; n < MAX_EXCHANGES; n += 1) begin(log)
    log.change(first.number, { state: 'answered', durationMs: 1 })
    first.request.body.add(Buffer.alloc(1_000))
    expect(log.find(first.number)).toBeUndefined()
  })

  it('takes a body that comes byte by byte as one that comes at once', () => {
    let memory = 0
    const body = new RecordedBody((bytes) => {
      memory += bytes
    })
    const byte = Buffer.from('x')
    for (let n = 0; n < 40_000; n += 1) body.add(byte)
    expect([body.totalBytes, body.bytes.length, body.isWhole]).toEqual([40_000, 40_000, true])
    expect(memory).toBe(MAX_BODY_BYTES)
    for (let n = 0; n < 40_000; n += 1) body.add(byte)
    expect([body.totalBytes, body.bytes.length, body.isWhole]).toEqual([
      80_000,
      MAX_BODY_BYTES,
      false,
    ])
    expect(memory).toBe(MAX_BODY_BYTES)
    expect(body.bytes.toString()).toBe('x'.repeat(MAX_BODY_BYTES))
  })

  it('counts what many small fields take up', () => {
    const log = new ExchangeLog()
    const fields = Array.from({ length: 1_000 }, () => ['a', ''] as const)
    for (let n = 0; n < MAX_EXCHANGES; n += 1) {
      log.begin({
        startedAt: 0,
        replayOf: undefined,
        request: { method: 'GET', target: '/', httpVersion: '1.1', fields },
      })
    }
    expect(log.list().length).toBeLessThan(MAX_BYTES / (64 * 1_000))
  })
})
