import { describe, expect, it } from 'vitest'
import { captureLog } from '../helpers/captured-log.ts'

const CANARY = 'canary-4f1c9a'

describe('logger', () => {
  it('censors secrets that come as plain strings under known names', () => {
    const { log, text } = captureLog()
    log.info({ authtoken: CANARY, req: { headers: { authorization: CANARY } } }, 'x')
    expect(text()).not.toContain(CANARY)
  })

  it('masks what looks like a secret in any text', () => {
    const { log, text } = captureLog()
    const url = `https://ann:${CANARY}@a.test/?key=${CANARY}`
    log.info({ err: new Error(`no answer from ${url}`), url }, `Bearer ${CANARY}`)
    expect(text()).not.toContain(CANARY)
  })

  it('shows stacks only to who asked for details', () => {
    const error = new Error('outer', { cause: new TypeError('inner') })
    const brief = captureLog('info')
    brief.log.error({ err: error }, 'failed')
    expect(brief.lines[0]?.err).toEqual({
      name: 'Error',
      message: 'outer',
      cause: { name: 'TypeError', message: 'inner' },
    })
    const detailed = captureLog('debug')
    detailed.log.error({ err: error }, 'failed')
    expect(detailed.text()).toContain('logger.test.ts')
  })
})
