import { describe, expect, it } from 'vitest'
import { warnOfEndedNode } from '../../src/cli/serve.ts'
import { captureLog } from '../helpers/captured-log.ts'

function warningsOf(version: string, day: string) {
  const { log, lines } = captureLog()
  warnOfEndedNode({ version, now: Date.parse(`${day}T12:00:00Z`), log })
  return lines.map(({ level, node, msg }) => ({ level, node, msg }))
}

describe('a start on a Node', () => {
  it('warns when its last security fixes were before today', () => {
    expect(warningsOf('20.20.2', '2026-05-01')).toEqual([
      {
        level: 'warn',
        node: '20.20.2',
        msg: 'Node.js 20 gets no security fixes since 2026-04-30: install a newer version',
      },
    ])
  })

  it.each([
    ['20.20.2', '2026-04-30'],
    ['22.23.3', '2027-04-30'],
    ['24.21.0', '2028-04-30'],
  ])('says nothing on %s while fixes come, as on %s', (version, day) => {
    expect(warningsOf(version, day)).toEqual([])
  })

  it.each([
    ['22.23.3', '2027-05-01'],
    ['24.21.0', '2028-05-01'],
  ])('warns on %s from %s on', (version, day) => {
    expect(warningsOf(version, day)).toHaveLength(1)
  })

  it('says nothing about a Node that is newer than this program', () => {
    expect(warningsOf('99.0.0', '2050-01-01')).toEqual([])
  })
})
