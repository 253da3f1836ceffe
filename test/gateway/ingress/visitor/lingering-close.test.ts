import { Writable } from 'node:stream'
import { expect, it } from 'vitest'
import { INGRESS_LIMITS } from '../../../../src/gateway/ingress/common/ingress-context.ts'
import { LingeringClose } from '../../../../src/gateway/ingress/visitor/client-output.ts'

const NOW = 1_000_000_000

it.each([1, 2, 50_000])('a client that takes nothing of %i bytes has its time first', (bytes) => {
  const socket = new Writable({ write() {} })
  socket.end(Buffer.alloc(bytes))
  const closing = new LingeringClose(socket, INGRESS_LIMITS)
  expect(closing.sweep(NOW)).toBe('wait')
  expect(closing.sweep(NOW + INGRESS_LIMITS.silenceMs)).toBe('wait')
  expect(closing.sweep(NOW + INGRESS_LIMITS.silenceMs + 1)).toBe('abort')
})
