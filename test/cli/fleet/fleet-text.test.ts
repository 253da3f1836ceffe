import { describe, expect, it } from 'vitest'
import type { DeviceReport } from '../../../src/cli/fleet/device-groups.ts'
import type { DeviceOutcome } from '../../../src/cli/fleet/device-outcome.ts'
import {
  exitCodeOf,
  outcomeText,
  reportsText,
  statusTable,
  summaryText,
} from '../../../src/cli/fleet/fleet-text.ts'

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

const plain = (_colour: unknown, text: string) => text
const SEEN = '2026-01-01T00:00:00.000Z'
const NOW = Date.parse('2026-01-01T02:00:00.000Z')
const shown = { paint: plain, isAll: false, now: NOW }

function report(name: string, more: Partial<DeviceReport>): DeviceReport {
  const agentDomain = `agent.${name}.site.test`
  return {
    ...{ name, agentDomain, tags: [], state: 'same', tunnels: [], problem: undefined },
    ...{ verdict: null, seen: undefined, ...more },
  }
}
const created = (name: string, port: number): Partial<DeviceReport> => ({
  state: 'differs',
  tunnels: [
    {
      ...{ action: 'create', domain: `view.${name}.site.test`, url: null, state: null },
      ...{ changes: { forwards_to: [null, `localhost:${port}`] }, last_error: null, remedy: null },
    },
  ],
})
const some = (count: number, more: (name: string, at: number) => Partial<DeviceReport>) =>
  Array.from({ length: count }, (_, at) => report(`cam${at}`, more(`cam${at}`, at)))

describe('devices with the same to tell', () => {
  it('share their lines for the same change, each with its own name in it', () => {
    const reports = some(8, (name, at) => created(name, at === 7 ? 2 : 1))
    expect(reportsText(reports, shown)).toBe(
      `7 devices  to change: cam0, cam1, cam2, cam3, cam4 and 2 more
  + view.{site}  forwards_to localhost:1
cam7  differs
  + view.cam7.site.test  forwards_to localhost:2
`,
    )
  })

  it('share them for the same fault, with the time from the gateway', () => {
    const reason = 'The agent was stopped.'
    const reports = some(41, (name, at) => ({
      state: 'offline',
      problem: `agent.${name}.site.test:443: no answer`,
      seen: at === 40 ? undefined : { at: at === 0 ? SEEN : '2026-01-01T01:00:00.000Z', reason },
    }))
    expect(reportsText(reports, shown)).toBe(
      `40 devices  offline: cam0, cam1, cam2, cam3, cam4 and 35 more
  {agent_domain}:443: no answer. The agent was stopped. (last seen 1 h to 2 h ago)
cam40  offline: agent.cam40.site.test:443: no answer
`,
    )
  })

  it('share them for the same refusal, which names the authtoken of each', () => {
    const reports = some(3, (_name, at) => ({
      state: 'pending',
      problem: `x.site.test is refused: The ACL rules of the authtoken cr_${String(at).repeat(27)} do not allow x.site.test.`,
    }))
    expect(reportsText(reports, shown)).toBe(
      `3 devices  stored, not all online: cam0, cam1, cam2
  x.site.test is refused: The ACL rules of the authtoken {id} do not allow x.site.test.
`,
    )
    expect(reportsText(reports.slice(0, 1), shown)).toContain(`cr_${'0'.repeat(27)}`)
  })

  it('are readable for 1,000 devices, and complete with --all', () => {
    const reports = [
      ...some(500, (name, at) => ({ state: 'failed', problem: `fault ${at} of ${name}` })),
      ...some(500, created),
    ]
    const text = reportsText(reports, shown)
    expect(text.split('\n').length).toBeLessThan(40)
    expect(text).toContain('… and 490 more failed. Show all with --all.')
    expect(reportsText(reports, { ...shown, isAll: true }).split('\n')).toHaveLength(1_501)
    const rows = statusTable(reports, shown)
    expect(rows.split('\n').length).toBeLessThan(25)
    expect(statusTable(reports, { ...shown, isAll: true }).split('\n')).toHaveLength(1_002)
  })
})

describe('the last lines', () => {
  it('count changes, devices and states', () => {
    const reports = [
      report('cam1', created('cam1', 1)),
      report('cam2', { state: 'offline' }),
      ...[report('cam3', {}), report('cam4', {})],
    ]
    expect(summaryText(reports, false)).toBe(
      'Plan: 1 to add, 0 to change, 0 to remove on 1 of 4 devices.\nDevices: 2 up to date, 1 to change, 1 offline.\n',
    )
    expect(summaryText([], true)).toBe(
      'Apply complete: 0 added, 0 changed, 0 removed on 0 of 0 devices.\nDevices: none.\n',
    )
  })

  it.each(['offline', 'pending', 'failed', 'stopped'] as const)(
    'call no apply complete with a device that is %s',
    (state) => {
      const reports = [report('cam1', {}), report('cam2', { state })]
      expect(summaryText(reports, true)).toMatch(/^Apply incomplete: 0 added/)
    },
  )

  it.each([
    [['same'], 0],
    [['same', 'unmanaged'], 4],
    [['offline', 'unmanaged'], 3],
    [['pending'], 3],
    [['differs', 'failed', 'unmanaged'], 1],
    [['stopped', 'differs'], 1],
  ] as const)('give %j the exit code %i', (states, code) => {
    expect(exitCodeOf(states.map((state) => report(state, { state })))).toBe(code)
  })
})
