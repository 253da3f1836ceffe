import { describe, expect, it } from 'vitest'
import {
  FrameReader,
  type WebSocketEnd,
} from '../../../../src/gateway/ingress/syntax/websocket-frame-reader.ts'
import { clientFrame } from '../../../helpers/websocket-frames.ts'

/** Reads bytes in pieces of some size; what was read must not be touched by what comes later. */
function readAll(bytes: Buffer, size = bytes.length) {
  const pings: string[] = []
  const reader = new FrameReader((content) => pings.push(content.toString('latin1')))
  const content: Buffer[] = []
  for (let at = 0; at < bytes.length; at += size) {
    content.push(Buffer.from(reader.read(Buffer.from(bytes.subarray(at, at + size)))))
  }
  return { content: Buffer.concat(content), pings, end: reader.end }
}

const close = (code?: number, reason = '') => {
  if (code === undefined) return clientFrame(8, Buffer.alloc(0))
  const content = Buffer.from(`  ${reason}`)
  content.writeUInt16BE(code)
  return clientFrame(8, content)
}

describe('FrameReader', () => {
  const long = Buffer.from(Array.from({ length: 70_000 }, (_, index) => index % 251))
  const conversation = Buffer.concat([
    clientFrame(2, Buffer.from('one ')),
    clientFrame(2, Buffer.from('tw'), { isFinal: false }),
    clientFrame(9, Buffer.from('in between')),
    clientFrame(0, Buffer.from('o '), { isFinal: false }),
    clientFrame(0, Buffer.alloc(0)),
    clientFrame(2, Buffer.alloc(0)),
    clientFrame(10, Buffer.from('nobody asked')),
    clientFrame(2, long.subarray(0, 300)),
    clientFrame(2, long),
    clientFrame(9, Buffer.alloc(125, 'x')),
    close(1000, 'bye'),
    clientFrame(2, Buffer.from('too late')),
  ])

  it.each([conversation.length, 65_536, 7, 1])('reads a conversation in pieces of %i', (size) => {
    const { content, pings, end } = readAll(conversation, size)
    const expected = Buffer.concat([Buffer.from('one two '), long.subarray(0, 300), long])
    expect(content.equals(expected)).toBe(true)
    expect(pings).toEqual(['in between', 'x'.repeat(125)])
    expect(end).toEqual({ kind: 'closed', code: 1000, reason: '' })
  })

  it('gives content on before its frame is whole', () => {
    const reader = new FrameReader(() => {})
    const frame = clientFrame(2, Buffer.from('hello'))
    expect(String(reader.read(Buffer.from(frame.subarray(0, 9))))).toBe('hel')
    expect(String(reader.read(Buffer.from(frame.subarray(9))))).toBe('lo')
  })

  const NONE = 1005
  it.each<[string, Buffer, Partial<WebSocketEnd>]>([
    ['without a code', close(), { kind: 'closed', code: NONE }],
    ['of an application', close(3_000), { kind: 'closed', code: 3_000 }],
    ['of a bad gateway', close(1_014), { kind: 'closed', code: 1_014 }],
    ['that is reserved', close(1_006), { kind: 'fault', code: 1_002 }],
    ['of nobody', close(2_999), { kind: 'fault', code: 1_002 }],
    ['out of all ranges', close(5_000), { kind: 'fault', code: 1_002 }],
    ['of one byte', clientFrame(8, Buffer.from('x')), { kind: 'fault', code: 1_002 }],
  ])('knows a Close %s', (_what, bytes, expected) => {
    expect(readAll(bytes).end).toMatchObject(expected)
  })

  const endless = Buffer.from([0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4])
  it.each<[string, Buffer, number]>([
    ['no mask', Buffer.from([0x82, 1, 0x20]), 1_002],
    ['an extension', clientFrame(2, Buffer.from('x'), { reserved: 0x40 }), 1_002],
    ['text', clientFrame(1, Buffer.from('x')), 1_003],
    ['an incomplete frame', endless, 1_009],
    ['an unknown kind', clientFrame(3, Buffer.from('x')), 1_002],
    ['an unknown control frame', clientFrame(11, Buffer.from('x')), 1_002],
    ['a Ping in parts', clientFrame(9, Buffer.from('x'), { isFinal: false }), 1_002],
    ['a Ping that is too long', clientFrame(9, Buffer.alloc(126)), 1_002],
    ['a part of nothing', clientFrame(0, Buffer.from('x')), 1_002],
    [
      'a message within a message',
      Buffer.concat([
        clientFrame(2, Buffer.from('x'), { isFinal: false }),
        clientFrame(2, Buffer.from('x')),
      ]),
      1_002,
    ],
  ])('refuses %s, and reads nothing behind it', (_what, bytes, code) => {
    const { end, pings } = readAll(Buffer.concat([bytes, clientFrame(9, Buffer.from('x'))]))
    expect(end).toMatchObject({ kind: 'fault', code, reason: expect.stringMatching(/^[a-z ]+$/) })
    expect(pings).toEqual([])
  })

  it('reads to a fault what stands before it', () => {
    const wrong = Buffer.concat([clientFrame(2, Buffer.from('good')), clientFrame(1, long)])
    expect(String(readAll(wrong).content)).toBe('good')
  })
})
