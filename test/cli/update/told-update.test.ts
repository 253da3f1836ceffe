import { describe, expect, it } from 'vitest'
import type { StatusView } from '../../../src/api/status-view.ts'
import type { UpdateView } from '../../../src/api/update-view.ts'
import { agentChecks } from '../../../src/cli/doctor/agent-checks.ts'
import { statusText } from '../../../src/cli/local/status-text.ts'
import { readVersion } from '../../../src/cli/version.ts'
import { startApi } from '../../api/started-api.ts'

async function statusWith(update: UpdateView | undefined): Promise<StatusView> {
  const { call } = await startApi({ update: { isOnTrial: () => false, report: () => update } })
  const status = (await call('GET', '/status')).json as unknown as StatusView
  return { ...status, versions: { ...status.versions, agent: readVersion() } }
}

const of = (state: UpdateView['state'], reason: string | null = null): UpdateView => {
  return { state, from: '1.0.0', to: '1.1.0', reason, sentence: `It is ${state}.` }
}

describe('an update', () => {
  it.each([
    [of('trying'), 'skipped', 'It is trying.'],
    [of('confirmed'), 'good', `${readVersion()} is installed and running`],
    [undefined, 'good', `${readVersion()} is installed and running`],
  ])('is told by the doctor: %j', async (update, outcome, detail) => {
    const findings = await agentChecks({ status: await statusWith(update), tunnels: [] })
    expect(findings.at(-1)).toMatchObject({ check: 'update', outcome, detail })
  })

  it.each([
    ['up', 'good'],
    ['waiting', 'bad'],
  ] as const)('that was rolled back, with a link that is %s, is %s', async (state, outcome) => {
    const status = await statusWith(of('rolled-back', 'it had no link'))
    const link = { ...status.link, state }
    const findings = await agentChecks({ status: { ...status, link }, tunnels: [] })
    expect(findings.find(({ check }) => check === 'update')).toEqual({
      check: 'update',
      outcome,
      detail: 'It is rolled-back.',
      remedy: expect.stringMatching(/repeat device-agent update/),
    })
  })

  it('is told by the status', async () => {
    const text = async (update: UpdateView | undefined) =>
      statusText(await statusWith(update), [], (_, plain) => plain)
    expect(await text(of('rolled-back', 'it had no link'))).toContain('  It is rolled-back.\n')
    expect(await text(undefined)).not.toContain('It is')
  })
})
