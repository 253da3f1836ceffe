import { expect, it } from 'vitest'
import { WriteCoalescer } from '../../../../src/gateway/ingress/common/client-socket.ts'
import { ClientOutput } from '../../../../src/gateway/ingress/visitor/client-output.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import { MemorySocket } from '../../../helpers/memory-socket.ts'

function setUp() {
  const socket = new MemorySocket()
  const told: number[] = []
  const output = new ClientOutput(socket, new WriteCoalescer(), () => told.push(output.heldBytes))
  return { socket, output, told }
}

it('says what it holds with each write, not when the tick is over', async () => {
  const { socket, output, told } = setUp()
  for (const bytes of [50_000, 50_000, 500]) output.write(Buffer.alloc(bytes))
  expect(told).toEqual([50_000, 100_000, 100_500])
  expect(output.takenBytes).toBe(0)
  await turns(2)
  while (socket.consume(10_000) > 0) await turns(1)
  output.flush()
  while (socket.consume(10_000) > 0) await turns(1)
  expect([output.heldBytes, output.takenBytes]).toEqual([0, 100_500])
})

it('holds nothing for who takes everything', async () => {
  const { output, told } = setUp()
  output.write(Buffer.alloc(1_000))
  output.write(Buffer.alloc(1_000))
  await turns(2)
  expect(told.at(-1)).toBe(0)
  expect(output.takenBytes).toBe(2_000)
})

it('writes no empty part to the socket, because Node reads a TLS socket then', async () => {
  const { socket, output } = setUp()
  const written: number[] = []
  const write = socket._write.bind(socket)
  socket._write = (chunk, encoding, done) => {
    written.push(chunk.length)
    write(chunk, encoding, done)
  }
  expect(output.write(Buffer.alloc(0))).toBe(true)
  expect(output.write(Buffer.alloc(100_000))).toBe(false)
  expect(output.write(Buffer.alloc(0))).toBe(false)
  await turns(2)
  expect(written).toEqual([100_000])
})
