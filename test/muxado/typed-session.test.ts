import { describe, expect, it } from 'vitest'
import { FIN, SYN } from '../../src/muxado/frame.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import { acceptTyped, openTyped } from '../../src/muxado/typed-session.ts'
import { turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'
import { RecordingHandler } from '../helpers/recording-handler.ts'

describe('openTyped', () => {
  it('puts type and first bytes into the SYN frame', async () => {
    const { session, peer } = await framedSession()
    openTyped(session, 3, new RecordingHandler(), Buffer.from('head'))
    openTyped(session, 0xffff_ffff, new RecordingHandler())
    await turns()
    expect(peer.frames).toEqual([
      { type: 'data', streamId: 2, body: '\0\0\0\x03head', flags: SYN },
      { type: 'data', streamId: 4, body: '\xff\xff\xff\xff', flags: SYN },
    ])
  })
})

describe('acceptTyped', () => {
  async function typedSession() {
    const accepted: { type: number; stream: Stream; handler: RecordingHandler }[] = []
    const accept = acceptTyped((type, stream) => {
      const handler = new RecordingHandler()
      stream.handler = handler
      accepted.push({ type, stream, handler })
    })
    return { ...(await framedSession({ acknowledges: true, accept })), typed: accepted }
  }

  it('hands on the type, and what follows it to the new handler', async () => {
    const { peer, typed } = await typedSession()
    peer.data(1, Buffer.from('ffffffff61626364', 'hex'), SYN)
    await turns()
    expect(typed).toMatchObject([{ type: 0xffff_ffff, handler: { events: ['data abcd'] } }])
  })

  it('puts a type together that comes in pieces', async () => {
    const { peer, typed } = await typedSession()
    peer.data(1, '', SYN)
    for (const byte of ['00', '00', '01', '02', '61']) peer.data(1, Buffer.from(byte, 'hex'))
    await turns()
    expect(typed).toMatchObject([{ type: 0x102, handler: { events: ['data a'] } }])
  })

  it('gives credit back for the type', async () => {
    const { peer } = await typedSession()
    peer.data(1, '\0\0\0\0rest', SYN)
    await turns()
    expect(peer.frames).toEqual([{ type: 'windowIncrement', streamId: 1, bytes: 4 }])
  })

  it('hands on a stream once, even if nobody takes it over', async () => {
    const types: number[] = []
    const { peer } = await framedSession({ accept: acceptTyped((type) => types.push(type)) })
    peer.data(1, '\0\0\0\x01\0\0\0\x02', SYN)
    peer.data(1, '\0\0\0\x03')
    await turns()
    expect(types).toEqual([1])
  })

  it('retires a stream that ends before its type', async () => {
    const { session, peer, typed } = await typedSession()
    peer.data(1, '\0\0', SYN | FIN)
    await turns()
    expect(typed).toEqual([])
    expect(peer.only('data')).toMatchObject([{ streamId: 1, flags: FIN }])
    expect(session.freeSlots).toBe(448)
  })
})
