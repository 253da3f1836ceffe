import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { FIN, INITIAL_WINDOW_BYTES } from '../../src/muxado/frame-codec.ts'
import { turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'
import { RecordingHandler } from '../helpers/recording-handler.ts'
import { asDuplex } from '../helpers/stream-duplex.ts'

describe('asDuplex', () => {
  async function duplexStream() {
    const framed = await framedSession({ role: 'client' })
    const duplex = asDuplex(framed.session.open(new RecordingHandler()))
    // The end of the test cuts the transport under it.
    duplex.on('error', () => {})
    await turns()
    framed.peer.frames.length = 0
    return { ...framed, duplex }
  }

  it('reads to the FIN and writes up to its own', async () => {
    const { duplex, peer, session } = await duplexStream()
    let received = ''
    duplex.on('data', (chunk) => {
      received += chunk
    })
    peer.data(1, 'ab')
    peer.data(1, 'c', FIN)
    await once(duplex, 'end')
    expect(received).toBe('abc')
    duplex.end('xyz')
    await once(duplex, 'close')
    await turns()
    expect(peer.frames).toMatchObject([{ body: 'xyz' }, { body: '', flags: FIN }])
    expect(session.freeSlots).toBe(448)
  })

  it('gives no credit for what nobody reads', async () => {
    const { duplex, peer } = await duplexStream()
    const granted = () => peer.only('windowIncrement').reduce((sum, { bytes }) => sum + bytes, 0)
    for (let frame = 0; frame < 16; frame++) peer.data(1, Buffer.alloc(16_384))
    await turns(60)
    expect(granted()).toBeLessThan(65_536)
    duplex.resume()
    await turns()
    expect(granted()).toBe(INITIAL_WINDOW_BYTES)
    duplex.pause()
    for (let frame = 0; frame < 16; frame++) peer.data(1, Buffer.alloc(16_384))
    await turns(60)
    expect(granted()).toBeLessThan(INITIAL_WINDOW_BYTES + 65_536)
  })

  it('finishes a write when the peer has given credit for it', async () => {
    const { duplex, peer } = await duplexStream()
    let written = false
    duplex.write(Buffer.alloc(INITIAL_WINDOW_BYTES + 1), () => {
      written = true
    })
    await turns()
    expect(written).toBe(false)
    peer.windowIncrement(1, 1)
    await turns()
    expect(written).toBe(true)
  })

  it('is destroyed by a reset of the peer, with its reason', async () => {
    const { duplex, peer } = await duplexStream()
    const failed = once(duplex, 'error')
    peer.reset(1, 5)
    expect(await failed).toMatchObject([{ reason: 'stream-reset', code: 5 }])
  })

  it('retires its stream when it is destroyed', async () => {
    const { duplex, peer, session } = await duplexStream()
    duplex.destroy()
    await turns()
    expect(peer.frames).toEqual([{ type: 'data', streamId: 1, body: '', flags: FIN }])
    expect(session.freeSlots).toBe(447)
    peer.data(1, '', FIN)
    await turns()
    expect(session.freeSlots).toBe(448)
  })
})
