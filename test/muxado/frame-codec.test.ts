import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MuxadoError } from '../../src/muxado/error-code.ts'
import {
  FIN,
  FrameDecoder,
  MAX_GO_AWAY_MESSAGE_BYTES,
  putData,
  putGoAway,
  putReset,
  putWindowIncrement,
  SYN,
} from '../../src/muxado/frame-codec.ts'
import { type Frame, frameSink, fromHex } from '../helpers/frame-peer.ts'

function encode(frame: Frame): Buffer {
  const target = Buffer.alloc(70_000)
  return target.subarray(0, put(frame, target))
}

function put(frame: Frame, target: Buffer): number {
  switch (frame.type) {
    case 'data':
      return putData(target, 0, frame.streamId, Buffer.from(frame.body, 'latin1'), frame.flags)
    case 'reset':
      return putReset(target, 0, frame.streamId, frame.code)
    case 'windowIncrement':
      return putWindowIncrement(target, 0, frame.streamId, frame.bytes)
    case 'goAway':
      return putGoAway(target, 0, frame.lastStreamId, frame.code, frame.message)
  }
}

function decode(...chunks: Buffer[]): Frame[] {
  const frames: Frame[] = []
  const decoder = new FrameDecoder(frameSink((frame) => frames.push(frame)))
  for (const chunk of chunks) decoder.push(chunk)
  return frames
}

/** Puts the parts of one DATA frame together again, as a stream's reader sees them. */
function joinParts(frames: Frame[]): Frame[] {
  const joined: Frame[] = []
  let open = false
  for (const frame of frames) {
    const last = joined.at(-1)
    if (frame.type !== 'data') joined.push(frame)
    else if (open && last?.type === 'data') {
      joined[joined.length - 1] = {
        ...last,
        body: last.body + frame.body,
        flags: last.flags | frame.flags,
      }
    } else joined.push(frame)
    // Every DATA frame in these tests ends with FIN, so a part without it is not the last.
    if (frame.type === 'data') open = (frame.flags & FIN) === 0
  }
  return joined
}

const GOLDEN: [string, string, Frame][] = [
  ['DATA', '000003 10 00000002 616263', { type: 'data', streamId: 2, body: 'abc', flags: 0 }],
  ['DATA SYN', '000001 12 00000003 78', { type: 'data', streamId: 3, body: 'x', flags: SYN }],
  ['DATA FIN', '000000 11 00000003', { type: 'data', streamId: 3, body: '', flags: FIN }],
  [
    'DATA SYN FIN on the last stream',
    '000002 13 7fffffff 4142',
    { type: 'data', streamId: 0x7fff_ffff, body: 'AB', flags: SYN | FIN },
  ],
  [
    'DATA of the largest frame',
    `003ff8 10 00000004 ${'61'.repeat(16_376)}`,
    { type: 'data', streamId: 4, body: 'a'.repeat(16_376), flags: 0 },
  ],
  ['RST', '000004 00 00000003 00000006', { type: 'reset', streamId: 3, code: 6 }],
  [
    'RST with a code of its own',
    '000004 00 00000003 ffffffff',
    { type: 'reset', streamId: 3, code: 0xffff_ffff },
  ],
  [
    'WNDINC',
    '000004 20 00000001 0012c498',
    { type: 'windowIncrement', streamId: 1, bytes: 0x12c498 },
  ],
  [
    'GOAWAY',
    '00000b 30 00000000 00000007 00000002 627965',
    { type: 'goAway', lastStreamId: 7, code: 2, message: 'bye' },
  ],
  [
    'GOAWAY without a message',
    '000008 30 00000000 00000000 00000000',
    { type: 'goAway', lastStreamId: 0, code: 0, message: '' },
  ],
]

describe('frames on the wire', () => {
  it.each(GOLDEN)('%s equals its bytes', (_name, hex, frame) => {
    expect(encode(frame).toString('hex')).toBe(fromHex(hex).toString('hex'))
    expect(decode(fromHex(hex))).toEqual([frame])
  })

  it('cuts a GOAWAY message that is too long for its frame', () => {
    const bytes = encode({ type: 'goAway', lastStreamId: 0, code: 0, message: 'm'.repeat(5_000) })
    expect(bytes.length).toBe(16 + MAX_GO_AWAY_MESSAGE_BYTES)
    expect(decode(bytes)).toMatchObject([{ message: 'm'.repeat(MAX_GO_AWAY_MESSAGE_BYTES) }])
  })
})

describe('FrameDecoder', () => {
  it.each([
    ['DATA on stream 0', '000000 10 00000000', 'protocol-violation', 1],
    ['RST on stream 0', '000004 00 00000000 00000000', 'protocol-violation', 1],
    ['WNDINC on stream 0', '000004 20 00000000 00000001', 'protocol-violation', 1],
    ['RST without a body', '000000 00 00000001', 'frame-size', 8],
    ['RST with a long body', '000005 00 00000001', 'frame-size', 8],
    ['WNDINC with a short body', '000003 20 00000001', 'frame-size', 8],
    ['WNDINC with a huge body', 'ffffff 20 00000001', 'frame-size', 8],
    ['an unknown type', '000000 40 00000001', 'protocol-violation', 1],
    ['the highest type', '000000 f0 00000001', 'protocol-violation', 1],
  ])('refuses %s by its header', (_name, hex, reason, code) => {
    const refusal = () => decode(fromHex(hex))
    expect(refusal).toThrow(MuxadoError)
    expect(refusal).toThrow(expect.objectContaining({ reason, code }))
  })

  it.each([
    ['the reserved bit of the stream id', '000000 11 80000003', { streamId: 3, flags: FIN }],
    ['unknown flags', '000000 1d 00000003', { streamId: 3, flags: FIN }],
    ['the reserved bit of an increment', '000004 20 00000003 80000005', { bytes: 5 }],
    ['flags on a WNDINC', '000004 2f 00000003 00000005', { bytes: 5 }],
    ['a stream id on a GOAWAY', '000008 30 00000005 00000001 00000002', { code: 2 }],
  ])('overlooks %s', (_name, hex, frame) => {
    expect(decode(fromHex(hex))).toMatchObject([frame])
  })

  it('hands on the body of a DATA frame as it comes, SYN on the first part and FIN on the last', () => {
    expect(decode(fromHex('000006 13 00000003 6162'), fromHex('63'), fromHex('646566'))).toEqual([
      { type: 'data', streamId: 3, body: 'ab', flags: SYN },
      { type: 'data', streamId: 3, body: 'c', flags: 0 },
      { type: 'data', streamId: 3, body: 'def', flags: FIN },
    ])
  })

  it('hands on the chunk itself, not a copy', () => {
    const chunk = fromHex('000002 10 00000003 6162')
    const bodies: Buffer[] = []
    const sink = { ...frameSink(() => {}), data: (_id: number, body: Buffer) => bodies.push(body) }
    new FrameDecoder(sink).push(chunk)
    expect(bodies[0]?.buffer).toBe(chunk.buffer)
  })

  it('reads a GOAWAY whose length leaves out its first 8 bytes, as the SDK writes it', () => {
    const bytes = fromHex(`00000d 30 00000000 00000003 00000001 ${'61'.repeat(13)}`)
    expect(decode(bytes)).toEqual([
      { type: 'goAway', lastStreamId: 3, code: 1, message: 'a'.repeat(5) },
    ])
  })

  it.each([0, 1, 7])('reads a GOAWAY of length %i as one without a message', (length) => {
    const bytes = Buffer.from([0, 0, length, 0x30, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 9, 9])
    expect(decode(bytes)).toEqual([{ type: 'goAway', lastStreamId: 3, code: 1, message: '' }])
  })

  it('keeps no more of a GOAWAY message than its limit', () => {
    const head = fromHex('ffffff 30 00000000 00000003 00000001')
    const frames = decode(head, Buffer.alloc(2_000, 'm'), Buffer.alloc(2_000, 'm'))
    expect(frames).toMatchObject([{ message: 'm'.repeat(MAX_GO_AWAY_MESSAGE_BYTES) }])
  })

  it('takes a GOAWAY for the last frame', () => {
    const goAway = '000008 30 00000000 00000000 00000000'
    expect(decode(fromHex(`${goAway} 000000 f0 00000000`), fromHex('ff'.repeat(20)))).toHaveLength(
      1,
    )
  })

  const streamId = fc.integer({ min: 1, max: 0x7fff_ffff })
  const uint32 = fc.integer({ min: 0, max: 0xffff_ffff })
  const anyFrame: fc.Arbitrary<Frame> = fc.oneof(
    fc.record({
      type: fc.constant('data' as const),
      streamId,
      body: fc.string({ unit: 'binary-ascii', maxLength: 200 }),
      flags: fc.constantFrom(FIN, SYN | FIN),
    }),
    fc.record({ type: fc.constant('reset' as const), streamId, code: uint32 }),
    fc.record({
      type: fc.constant('windowIncrement' as const),
      streamId,
      bytes: fc.integer({ min: 0, max: 0x7fff_ffff }),
    }),
  )
  const goAway: fc.Arbitrary<Frame> = fc.record({
    type: fc.constant('goAway' as const),
    lastStreamId: streamId,
    code: uint32,
    message: fc.string({ unit: 'binary-ascii', maxLength: 50 }),
  })

  it('decodes alike however the bytes are cut', () => {
    fc.assert(
      fc.property(
        fc.array(anyFrame, { maxLength: 12 }),
        fc.option(goAway, { nil: undefined }),
        fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 40 }),
        (frames, last, sizes) => {
          const sent = last ? [...frames, last] : frames
          const bytes = Buffer.concat(sent.map(encode))
          const chunks: Buffer[] = []
          for (let at = 0, turn = 0; at < bytes.length; turn++) {
            const size = sizes[turn % sizes.length] ?? 1
            chunks.push(bytes.subarray(at, at + size))
            at += size
          }
          expect(joinParts(decode(...chunks))).toEqual(sent)
        },
      ),
      { numRuns: 500 },
    )
  })
})
