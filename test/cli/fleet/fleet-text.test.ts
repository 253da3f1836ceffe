import { describe, expect, it } from 'vitest'
import type { DeviceOutcome } from '../../../src/cli/fleet/device-outcome.ts'
import { outcomeText, summaryText } from '../../../src/cli/fleet/fleet-text.ts'

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

describe('a device', () => {
  it('is told to be retired where its end is what was changed', () => {
    const outcome: DeviceOutcome = {
      name: 'cam1',
      state: 'applied',
      tunnels: [],
      problem: undefined,
    }
    const plain = (_colour: unknown, text: string) => text
    expect(outcomeText(outcome, plain)).toBe('cam1  changed\n')
    expect(outcomeText(outcome, plain, true)).toBe('cam1  retired\n')
  })
})

describe('the last line', () => {
  it('counts devices and tunnels', () => {
    const states = ['same', 'same', 'differs', 'offline'] as const
    const outcomes = states.map((state) => ({
      name: state,
      state,
      tunnels: [],
      problem: undefined,
    }))
    expect(summaryText(outcomes, false)).toBe(
      'Tunnels: 0 to create, 0 to replace, 0 to delete. Devices: 2 up to date, 1 to change, 1 offline.\n',
    )
    expect(summaryText([], true)).toBe(
      'Tunnels: 0 created, 0 replaced, 0 deleted. Devices: none.\n',
    )
  })
})
