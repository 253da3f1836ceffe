import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { FIN, SYN } from '../../src/muxado/frame-codec.ts'
import { answer, call, JsonReader, notify, readMessage } from '../../src/muxado/rpc.ts'
import { turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

const read = (...parts: string[]) => {
  const reader = new JsonReader(1_000_000)
  return parts.map((part) => reader.push(Buffer.from(part))).at(-1)
}

describe('JsonReader', () => {
  it.each([
    ['an empty object', '{}', {}],
    ['white space before it', ' \r\n\t{"a":1}', { a: 1 }],
    ['braces in a string', '{"a":"}{]["}', { a: '}{][' }],
    ['quotes in a string', '{"a":"\\"}\\\\"}', { a: '"}\\' }],
    ['what nests', '{"a":[{"b":{}}],"c":{}}', { a: [{ b: {} }], c: {} }],
    ['something behind it', '{"a":1}{"b":2}', { a: 1 }],
  ])('reads %s', (_name, text, value) => {
    expect(read(text)).toEqual(value)
  })

  it('waits for the last brace', () => {
    expect(read('{"a":', '{}')).toBeUndefined()
    expect(read('{"a":', '{}', '}')).toEqual({ a: {} })
  })

  it.each([
    ['an array', '[]'],
    ['a string', '"{}"'],
    ['a number', '1{}'],
    ['a closing brace', '}'],
    ['braces with nonsense', '{nonsense}'],
    ['braces that do not match', '{]'],
    ['a raw line break in a string', '{"a":"\n"}'],
  ])('refuses %s', (_name, text) => {
    expect(() => read(text)).toThrow(expect.objectContaining({ reason: 'message-invalid' }))
  })

  it('keeps what the parser said as the cause', () => {
    expect(() => read('{nonsense}')).toThrow(
      expect.objectContaining({ cause: expect.any(SyntaxError) }),
    )
  })

  it('takes as many bytes as its limit and not one more', () => {
    expect(new JsonReader(7).push(Buffer.from('{"a":1} '))).toEqual({ a: 1 })
    const reader = new JsonReader(6)
    reader.push(Buffer.from('{"a":'))
    expect(() => reader.push(Buffer.from('12'))).toThrow(
      expect.objectContaining({ reason: 'message-too-large' }),
    )
  })

  it('reads any object alike however it is cut', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()),
        fc.integer({ min: 1, max: 20 }),
        (value, size) => {
          const text = JSON.stringify(value)
          const bytes = Buffer.from(text)
          const reader = new JsonReader(bytes.length)
          let found: unknown
          for (let at = 0; at < bytes.length; at += size) {
            expect(found).toBeUndefined()
            found = reader.push(bytes.subarray(at, at + size))
          }
          expect(found).toEqual(JSON.parse(text))
        },
      ),
    )
  })
})

const limitsWith = (clock: ManualClock) => ({ maxBytes: 100, deadlineMs: 1_000, clock })

describe('readMessage', () => {
  async function reading() {
    const clock = new ManualClock()
    const framed = await framedSession({ role: 'client' })
    framed.peer.data(2, '{"a"', SYN)
    await turns()
    const [accepted] = framed.accepted
    if (accepted === undefined) throw new Error('no stream was accepted')
    return { ...framed, clock, stream: accepted.stream }
  }

  it('resolves with the object, no FIN needed, and answers with FIN', async () => {
    const { peer, stream, session, clock } = await reading()
    const message = readMessage(stream, limitsWith(clock))
    peer.data(2, '{"b"')
    peer.data(2, ':2}')
    expect(await message).toEqual({ b: 2 })
    expect(clock.sleeping).toBe(0)
    answer(stream, { c: 3 })
    peer.data(2, '', FIN)
    await turns()
    expect(peer.frames).toMatchObject([{ body: '{"c":3}' }, { body: '', flags: FIN }])
    expect(session.freeSlots).toBe(448)
  })

  it.each([
    ['a message that is too long', `{"b":"${'x'.repeat(100)}"}`, 'message-too-large'],
    ['a message that is no object', '[]', 'message-invalid'],
  ])('rejects %s, and the stream still takes an answer', async (_name, text, reason) => {
    const { peer, stream, clock } = await reading()
    const message = readMessage(stream, limitsWith(clock))
    peer.data(2, text)
    await expect(message).rejects.toMatchObject({ reason })
    answer(stream, { Error: 'no' })
    await turns()
    expect(peer.frames).toMatchObject([{ body: '{"Error":"no"}' }, { body: '', flags: FIN }])
  })

  it('reads a message that is longer than a window', async () => {
    const { peer, stream, clock } = await reading()
    const message = readMessage(stream, { ...limitsWith(clock), maxBytes: 400_000 })
    peer.data(2, '{"long":"')
    for (let part = 0; part < 20; part++) {
      peer.data(2, 'x'.repeat(16_000))
      await turns(2)
    }
    peer.data(2, '"}')
    expect(await message).toEqual({ long: 'x'.repeat(320_000) })
  })

  it('rejects a message that does not come in time', async () => {
    const { peer, stream, clock } = await reading()
    const message = readMessage(stream, limitsWith(clock))
    const settled = expect(message).rejects.toMatchObject({ reason: 'message-timeout' })
    peer.data(2, '{"b":')
    await turns()
    await clock.advance(1_000)
    await settled
  })

  it('rejects a message that breaks off', async () => {
    const { peer, stream, clock } = await reading()
    const message = readMessage(stream, limitsWith(clock))
    peer.data(2, '{"b":', FIN)
    await expect(message).rejects.toMatchObject({ reason: 'message-invalid' })
  })

  it('rejects with the reason why the stream closed', async () => {
    const { peer, stream, clock } = await reading()
    const message = readMessage(stream, limitsWith(clock))
    peer.reset(2, 7)
    await expect(message).rejects.toMatchObject({ reason: 'stream-reset', code: 7 })
  })

  it('lets a peer send all of a refused message, so that it gets to the answer', async () => {
    const { peer, stream, clock } = await reading()
    const message = readMessage(stream, limitsWith(clock))
    peer.data(2, `{"b":"${'x'.repeat(200)}`)
    await expect(message).rejects.toMatchObject({ reason: 'message-too-large' })
    answer(stream, { Error: 'no' })
    const part = Buffer.alloc(65_536)
    for (let sent = 0; sent < 16_777_216; sent += part.length) {
      peer.data(2, part)
      await turns(1)
    }
    await turns()
    const credit = peer.only('windowIncrement').reduce((sum, { bytes }) => sum + bytes, 0)
    expect(credit).toBeGreaterThan(16_777_216 - 65_536)
    expect(peer.only('reset')).toEqual([])
    // There is an end to that, too.
    peer.data(2, 'x')
    await turns()
    expect(peer.only('reset')).toEqual([{ type: 'reset', streamId: 2, code: 6 }])
  })

  it('keeps what else comes within the window, unread', async () => {
    const { peer, stream, clock } = await reading()
    const message = readMessage(stream, limitsWith(clock))
    peer.data(2, '{}')
    await message
    for (let frame = 0; frame < 17; frame++) peer.data(2, Buffer.alloc(16_000))
    await turns(60)
    expect(peer.frames).toMatchObject([{ type: 'reset', code: 3 }, { type: 'windowIncrement' }])
  })
})

describe('call', () => {
  it('sends one object in the SYN frame and resolves with the answer', async () => {
    const clock = new ManualClock()
    const { session, peer } = await framedSession({ role: 'client' })
    const response = call(session, 4, { stop: true }, limitsWith(clock))
    await turns()
    expect(peer.frames).toMatchObject([{ body: '\0\0\0\x04{"stop":true}', flags: SYN }])
    peer.data(1, '{"error":null}')
    expect(await response).toEqual({ error: null })
    peer.data(1, '', FIN)
    await turns()
    expect(session.freeSlots).toBe(448)
  })

  it('retires its stream when no answer comes', async () => {
    const clock = new ManualClock()
    const { session, peer } = await framedSession({ role: 'client' })
    const settled = expect(call(session, 4, {}, limitsWith(clock))).rejects.toMatchObject({
      reason: 'message-timeout',
    })
    await clock.advance(1_000)
    await settled
    await turns()
    expect(peer.frames.at(-1)).toMatchObject({ type: 'data', flags: FIN })
  })

  it('rejects when the session has no room', async () => {
    const { session } = await framedSession({ limits: { openStreams: 0 } })
    await expect(call(session, 4, {}, limitsWith(new ManualClock()))).rejects.toMatchObject({
      reason: 'streams-exhausted',
    })
  })
})

describe('notify', () => {
  it('sends one object and FIN', async () => {
    const { session, peer } = await framedSession({ role: 'client' })
    notify(session, 9, { Id: 'x' })
    await turns()
    expect(peer.frames).toMatchObject([
      { body: '\0\0\0\x09{"Id":"x"}', flags: SYN },
      { body: '', flags: FIN },
    ])
  })
})
