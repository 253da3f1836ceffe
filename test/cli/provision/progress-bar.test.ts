import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { ProgressBar } from '../../../src/cli/provision/progress-bar.ts'

function startBar(isTTY: boolean, total: number, columns?: number) {
  const written: string[] = []
  const stream = new Writable({
    write(chunk, _encoding, done) {
      written.push(String(chunk).replace('\r\x1b[2K', ''))
      done()
    },
  })
  const bar = new ProgressBar({
    stream: Object.assign(stream, { isTTY, ...(columns !== undefined && { columns }) }),
    total,
  })
  return { bar, written }
}

describe('ProgressBar', () => {
  it('fills up on a terminal and goes away', () => {
    const { bar, written } = startBar(true, 4)
    for (const name of ['a', 'b', 'c', 'd']) bar.advance(name)
    bar.clear()
    expect(written).toEqual([
      '[######..................] 1/4 a',
      '[############............] 2/4 b',
      '[##################......] 3/4 c',
      '[########################] 4/4 d',
      '',
    ])
  })

  it('stays on its line of a narrow terminal', () => {
    const { bar, written } = startBar(true, 2, 40)
    bar.advance('a-device-with-a-long-name')
    expect(written).toEqual(['[############............] 1/2 a-device'])
  })

  it('shows whole names on a terminal that does not know its width', () => {
    const { bar, written } = startBar(true, 2, 0)
    bar.advance('cam01')
    expect(written).toEqual(['[############............] 1/2 cam01'])
  })

  it.each([
    ['in a file', false, 4],
    ['for a single device', true, 1],
  ])('is not there %s', (_where, isTTY, total) => {
    const { bar, written } = startBar(isTTY, total)
    bar.advance('a')
    bar.clear()
    expect(written).toEqual([])
  })
})
