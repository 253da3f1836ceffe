import { expect, it } from 'vitest'
import { settleRivals } from '../../../src/gateway/agents/duplicate-sessions.ts'
import type { TableEntry } from '../../../src/gateway/agents/session-table.ts'
import type { AgentIdentity } from '../../../src/gateway/endpoints/endpoint.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { serviceCode } from '../../helpers/service-code.ts'

it.each([
  ['that has not been measured', undefined, 2_000],
  ['in the network', 20, 2_000],
  ['on a slow link', 4_000, 16_000],
])('gives the older process %s its time to answer', async (_, latencyMs, expectedMs) => {
  const given: number[] = []
  const rival = {
    latencyMs,
    identity: { remoteAddress: '192.0.2.1:4000' },
    answers: async (withinMs: number) => {
      given.push(withinMs)
      return true
    },
    noteDuplicate: () => true,
  } as unknown as TableEntry
  const identity = { deviceId: 'dev_1', remoteAddress: '192.0.2.9:1' } as AgentIdentity
  const refused = await settleRivals(identity, { rivalOf: () => rival }, captureLog().log).catch(
    (error: unknown) => error,
  )
  expect(
    serviceCode(() => {
      throw refused
    }),
  ).toBe(830)
  expect(given).toEqual([expectedMs])
})
