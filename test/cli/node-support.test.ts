import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LAST_FIXES, warnOfEndedNode } from '../../src/cli/serve.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ROOT } from '../helpers/document-part.ts'

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

describe('the table of supported versions', () => {
  const page = readFileSync(join(ROOT, 'docs/getting-started/install.md'), 'utf8')
  const rows = Array.from(
    page.matchAll(/^\| (\d+) \| (\d+\.\d+\.\d+) \| (\S+) \|/gm),
    ([, line = '', from = '', until = '']) => ({ line, from, until }),
  ).sort((a, b) => Number(a.line) - Number(b.line))

  it('has the versions that package.json allows', () => {
    const { engines } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    const ranges = (engines.node as string).split(' || ')
    const newest = ranges.findIndex((range) => range.startsWith('>='))
    expect(newest).toBe(ranges.length - 1)
    expect(rows.slice(0, newest + 1).map(({ from }) => from)).toEqual(
      ranges.map((range) => range.replace(/^(\^|>=)/, '')),
    )
  })

  it('has the days that a start warns from', () => {
    expect(rows.map(({ line }) => line)).toEqual(['20', '22', '24', '26'])
    for (const { line, until } of rows) expect(LAST_FIXES.get(line)).toBe(until)
  })
})
