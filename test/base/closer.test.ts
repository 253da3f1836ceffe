import { describe, expect, it } from 'vitest'
import { Closer } from '../../src/base/closer.ts'
import { captureLog } from '../helpers/captured-log.ts'

describe('Closer', () => {
  it('closes newest first, once, however often it is asked', async () => {
    const closed: string[] = []
    const closer = new Closer(captureLog().log)
    for (const name of ['first', 'second']) {
      closer.own(name, name, (what) => {
        closed.push(what)
      })
    }
    await Promise.all([closer.close(), closer.close()])
    expect(closed).toEqual(['second', 'first'])
  })

  it('goes on after a part that throws and one that never ends, and names both', async () => {
    const { log, lines } = captureLog()
    const closed: string[] = []
    const closer = new Closer(log)
    closer.own('last', 1, () => {
      closed.push('last')
    })
    closer.own('stuck', 1, () => new Promise<void>(() => {}), 20)
    closer.own('broken', 1, () => {
      throw new Error('no')
    })
    await closer.close()
    expect(closed).toEqual(['last'])
    expect(lines.map((line) => line.part)).toEqual(['broken', 'stuck'])
  })
})
