import { expect, it } from 'vitest'
import { ErrorCode } from '../../../src/muxado/error-code.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { Asker, startSlots } from '../../helpers/slots-rig.ts'

it('given up twice, costs no other stream', async () => {
  const { createPool, session } = await startSlots()
  const { freeSlots } = session
  const pool = createPool('ep_a')
  const [idle, stream] = [new Asker(pool, '1').ask().stream, new Asker(pool, '1').ask().stream]
  idle?.release()
  stream?.retire()
  stream?.retire()
  await turns()
  stream?.retire()
  expect([pool.holding.held, session.freeSlots]).toEqual([0, freeSlots - 1])
  expect(new Asker(pool, '1').ask().stream).toBe(idle)
})

it('reset by the device, is nobody’s any more, and costs no other stream', async () => {
  const { createPool, device, slots } = await startSlots()
  const pool = createPool('ep_a')
  const idle = new Asker(pool, '1').ask().stream
  const asker = new Asker(pool, '1').ask()
  idle?.release()
  await turns()
  const ofDevice = device.streams.find(({ id }) => id === asker.stream?.stream.id)
  ofDevice?.reset(ErrorCode.streamCancelled)
  await turns()
  expect([asker.isClosed, pool.holding.held, slots.clients]).toEqual([true, 0, 0])
  asker.stream?.retire()
  expect(new Asker(pool, '1').ask().stream).toBe(idle)
})

it('is told to nobody as a stream when the session ends as it is opened', async () => {
  // Requests pile up for a device that does not read, until one is too many.
  const { createPool, session, slots } = await startSlots({
    isStuck: true,
    session: { openStreams: 4_000, backlogBytes: 1 },
  })
  const pool = createPool('ep_a')
  const askers: Asker[] = []
  while (session.freeSlots > 0) askers.push(new Asker(pool, `${askers.length}`).ask())
  expect(askers.length).toBeGreaterThan(2)
  const last = askers.at(-1)
  expect([last?.stream, last?.refused]).toEqual([undefined, 'session-over'])
  expect(askers.slice(0, -1).every(({ isClosed }) => isClosed)).toBe(true)
  expect([pool.holding.held, slots.clients, slots.available]).toEqual([0, 0, 0])
})
