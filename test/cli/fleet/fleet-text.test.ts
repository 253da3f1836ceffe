import { describe, expect, it } from 'vitest'
import type { DeviceOutcome } from '../../../src/cli/fleet/device-outcome.ts'
import { outcomeText } from '../../../src/cli/fleet/fleet-text.ts'

/** A line of a tunnel with these changes, as a device may tell them. */
function lineOf(changes: Record<string, unknown[]>): string {
  const step = {
    ...({ action: 'replace', domain: 'a.test', changes, url: null, state: null } as const),
    ...{ reason: null, remedy: null, last_error: null, service_code: null, next_retry_at: null },
  }
  const outcome: DeviceOutcome = {
    name: 'cam1',
    state: 'differs',
    tunnels: [step],
    problem: undefined,
  }
  return outcomeText(outcome, (_colour, text) => text).split('\n')[1] ?? ''
}

describe('what a device says of a change', () => {
  it('is shown whatever it is', () => {
    expect(lineOf({ upstream: [null, { tls: true }], pooling_enabled: [false, undefined] })).toBe(
      '  ~ a.test  upstream none → {"tls":true}, pooling_enabled false → none',
    )
    // String() of it would throw.
    const { wire } = JSON.parse('{"wire": {"toString": 1}}') as { wire: unknown }
    expect(lineOf({ upstream: [wire, 1] })).toContain('{"toString":1} → 1')
  })

  it('is cut where nobody would read on, and moves no cursor', () => {
    const line = lineOf({ forwards_to: ['a', `\x1b[2J${'x'.repeat(10_000)}`] })
    expect(line.length).toBeLessThan(400)
    expect(line).not.toContain('\x1b')
  })
})
