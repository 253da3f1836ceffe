import { describe, expect, it } from 'vitest'
import { logText, readableLines, readLogLine } from '../../../src/cli/local/log-text.ts'
import type { Paint } from '../../../src/cli/local/terminal-text.ts'

const plain: Paint = (_colour, text) => text
const painted: Paint = (colour, text) => `<${colour}>${text}</>`
const LINE = {
  level: 'warn',
  time: '2026-11-22T10:57:14.000Z',
  msg: 'tunnel waiting',
  reason: 'network',
  detail: 'no route to host',
  n: 3,
}

describe('logText', () => {
  it('says when, how grave and what, then the details', () => {
    expect(logText(LINE, plain)).toMatch(
      /^Nov 2\d \d\d:57:14 warn {2}tunnel waiting reason=network detail="no route to host" n=3$/,
    )
    expect(logText({ level: 'info', time: LINE.time, msg: 'agent is up' }, plain)).toMatch(
      / info {2}agent is up$/,
    )
  })

  it('colours what is not well, and nothing where nobody looks', () => {
    expect(logText(LINE, painted)).toContain('<yellow>warn </> <bold>tunnel waiting</> <dim>reason')
    expect(logText({ ...LINE, level: 'error' }, painted)).toContain('<red>error</>')
    expect(logText({ ...LINE, level: 'info' }, painted)).not.toMatch(/<(yellow|red)>/)
  })

  it('obeys no sign of what was logged', () => {
    const nasty = '\x1b[2Jgone\nfake line\u202e'
    expect(
      logText({ ...LINE, msg: nasty, level: nasty, time: nasty, [nasty]: nasty }, plain),
    ).not.toMatch(/[\p{Cc}\p{Cf}]/u)
    expect(logText(nasty, plain)).not.toMatch(/[\p{Cc}\p{Cf}]/u)
  })
})

describe('readLogLine', () => {
  it.each([
    ['a line of ours', JSON.stringify(LINE), LINE],
    ['one with a priority before it', `<4>${JSON.stringify(LINE)}\n`, LINE],
    ['words of the service manager', 'Started device-agent.', 'Started device-agent.'],
    ['JSON of somebody else', '{"a":1}', '{"a":1}'],
    ['half a line', '{"level":"info","ti', '{"level":"info","ti'],
  ])('reads %s', (_what, text, line) => {
    expect(readLogLine(text)).toEqual(line)
  })
})

describe('readableLines', () => {
  it('makes text of JSON on its way', () => {
    const written: string[] = []
    readableLines({ write: (text) => void written.push(text) }, plain).write(JSON.stringify(LINE))
    expect(written).toEqual([expect.stringMatching(/tunnel waiting reason=network.*\n$/)])
  })
})
