import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { FrameDecoder } from '../../src/muxado/frame-codec.ts'
import { FrameWriter, SlabPool } from '../../src/muxado/frame-writer.ts'
import { type Frame, frameSink, turns } from '../helpers/frame-peer.ts'

const FULL_FRAME = Buffer.alloc(16_376, 'f')

/** A transport that is done with a write only when told. */
class SlowTransport extends Writable {
  readonly writes: Buffer[] = []
  #done: ((error?: Error) => void) | undefined

  constructor() {
    super({ highWaterMark: 1 })
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.writes.push(chunk)
    this.#done = done
  }

  /** Finishes the oldest write. */
  async finish(error?: Error): Promise<void> {
    this.#done?.(error)
    await turns(2)
  }
}

function setUp({ backlogBytes = 1_048_576, slabs = new SlabPool() } = {}) {
  const transport = new SlowTransport()
  const calls: string[] = []
  const writer = new FrameWriter({
    ...{ transport, slabs, backlogBytes },
    onRoom: () => calls.push('room'),
    onIdle: () => {
      calls.push('idle')
      writer.windowIncrement(9, 1)
    },
    onOverflow: () => calls.push('overflow'),
  })
  const frames = () => {
    const decoded: Frame[] = []
    const decoder = new FrameDecoder(frameSink((frame) => decoded.push(frame)))
    for (const chunk of transport.writes) decoder.push(chunk)
    return decoded
  }
  return { transport, writer, calls, frames }
}

describe('FrameWriter', () => {
  it('gives all frames of one turn to the transport in one write', async () => {
    const { transport, writer, frames } = setUp()
    writer.data(1, Buffer.from('a'), 0)
    writer.windowIncrement(1, 5)
    writer.reset(3, 6)
    expect(transport.writes).toHaveLength(0)
    await turns(2)
    expect(transport.writes).toHaveLength(1)
    expect(frames().map((frame) => frame.type)).toEqual(['data', 'windowIncrement', 'reset'])
  })

  it('writes in the next turn what a write has caused at once', async () => {
    const { transport, writer, frames } = setUp()
    const write = transport._write.bind(transport)
    transport._write = (chunk, encoding, done) => {
      write(chunk, encoding, done)
      if (transport.writes.length === 1) writer.windowIncrement(1, 5)
      done()
    }
    writer.data(1, Buffer.from('a'), 0)
    await turns(4)
    expect(frames().map((frame) => frame.type)).toEqual(['data', 'windowIncrement'])
  })

  it('writes at once when a slab is full', () => {
    const { transport, writer } = setUp()
    for (let frame = 0; frame < 4; frame++) writer.data(1, FULL_FRAME, 0)
    expect(transport.writes).toHaveLength(0)
    writer.data(1, Buffer.from('x'), 0)
    expect(transport.writes.map((chunk) => chunk.length)).toEqual([65_536])
  })

  it('copies: a body may change as soon as it was put', async () => {
    const { writer, frames } = setUp()
    const body = Buffer.from('before')
    writer.data(1, body, 0)
    body.fill('x')
    await turns(2)
    expect(frames()).toMatchObject([{ body: 'before' }])
  })

  it('uses a slab again only after the transport is done with it', async () => {
    const { transport, writer } = setUp()
    writer.data(1, Buffer.from('one'), 0)
    await turns(2)
    writer.data(1, Buffer.from('two'), 0)
    await turns(2)
    expect(transport.writes[0]?.toString('latin1', 8)).toBe('one')
    await transport.finish()
    await transport.finish()
    writer.data(1, Buffer.from('abc'), 0)
    await turns(2)
    const [first, second, third] = transport.writes
    expect([first?.buffer, second?.buffer]).toContain(third?.buffer)
  })

  it('keeps no slab while nothing is written: another one of the process has it', async () => {
    const slabs = new SlabPool()
    const [one, other] = [setUp({ slabs }), setUp({ slabs })]
    one.writer.data(1, Buffer.from('one'), 0)
    await turns(2)
    expect(slabs.spare).toBe(0)
    await one.transport.finish()
    expect(slabs.spare).toBe(1)
    other.writer.data(1, Buffer.from('other'), 0)
    await turns(2)
    expect(slabs.spare).toBe(0)
    expect(other.transport.writes[0]?.buffer).toBe(one.transport.writes[0]?.buffer)
    expect(one.transport.writes[0]?.toString('latin1', 8)).toBe('other'.slice(0, 3))
  })

  it('gives no slab to others that a broken transport may have', async () => {
    const slabs = new SlabPool()
    const { transport, writer } = setUp({ slabs })
    transport.on('error', () => {})
    writer.data(1, Buffer.from('one'), 0)
    await turns(2)
    await transport.finish(new Error('broken'))
    expect(slabs.spare).toBe(0)
  })

  it('keeps no more memory than a moment of many sessions takes', () => {
    const slabs = new SlabPool()
    const taken = Array.from({ length: 1_000 }, () => slabs.take())
    for (const slab of taken) slabs.give(slab)
    expect(slabs.spare).toBe(128)
  })

  it('puts a GOAWAY whole into the next slab when the rest of this one is too small', async () => {
    const { transport, writer, frames } = setUp()
    for (let frame = 0; frame < 3; frame++) writer.data(1, FULL_FRAME, 0)
    // Leaves 1,030 bytes; the GOAWAY takes 1,040.
    writer.data(1, Buffer.alloc(15_346), 0)
    writer.goAway(3, 0, 'm'.repeat(1_024))
    await turns(2)
    await transport.finish()
    expect(frames().at(-1)).toMatchObject({ type: 'goAway', message: 'm'.repeat(1_024) })
  })

  it('has no room with four slabs in flight, and says when there is room again', async () => {
    const { transport, writer, calls } = setUp()
    for (let slab = 1; slab <= 4; slab++) {
      expect(writer.hasRoom).toBe(true)
      writer.data(1, Buffer.from('x'), 0)
      await turns(2)
    }
    expect(writer.hasRoom).toBe(false)
    await transport.finish()
    expect(calls).toEqual([])
    await transport.finish()
    expect(calls).toEqual(['room'])
    expect(writer.hasRoom).toBe(true)
  })

  it('collects control frames in one slab while the transport is full, and sends them after', async () => {
    const { transport, writer, frames } = setUp()
    for (let slab = 1; slab <= 4; slab++) {
      writer.data(slab, Buffer.from('x'), 0)
      await turns(2)
    }
    for (let frame = 0; frame < 100; frame++) {
      writer.reset(9, frame)
      await turns(1)
    }
    for (let write = 0; write < 5; write++) await transport.finish()
    expect(transport.writes).toHaveLength(5)
    expect(frames()).toHaveLength(104)
  })

  it('reports an overflow when more than the backlog is in flight', () => {
    const { writer, calls } = setUp({ backlogBytes: 3 * 65_536 })
    const putSlab = () => {
      for (let frame = 0; frame < 4; frame++) writer.data(1, FULL_FRAME, 0)
    }
    for (let slab = 0; slab < 4; slab++) putSlab()
    expect(calls).toEqual([])
    putSlab()
    expect(calls).toEqual(['overflow'])
  })

  it('asks for a frame when an acknowledgement is due and nothing else goes out', async () => {
    const { writer, calls, frames } = setUp()
    writer.acknowledge()
    await turns(2)
    expect(calls).toEqual(['idle'])
    expect(frames()).toEqual([{ type: 'windowIncrement', streamId: 9, bytes: 1 }])
    await turns(2)
    expect(calls).toEqual(['idle'])
  })

  it('lets any frame of the same turn carry the acknowledgement', async () => {
    const { writer, calls } = setUp()
    writer.acknowledge()
    writer.data(1, Buffer.from('x'), 0)
    await turns(2)
    expect(calls).toEqual([])
  })

  it('writes what is collected when it closes, and nothing after', async () => {
    const { transport, writer, frames } = setUp()
    writer.goAway(3, 0, 'bye')
    writer.close()
    writer.data(1, Buffer.from('late'), 0)
    for (let frame = 0; frame < 4; frame++) writer.data(1, FULL_FRAME, 0)
    writer.close()
    await turns(2)
    await transport.finish()
    expect(frames()).toEqual([{ type: 'goAway', lastStreamId: 3, code: 0, message: 'bye' }])
  })
})
