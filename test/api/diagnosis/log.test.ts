import { describe, expect, it } from 'vitest'
import { startApi } from '../started-api.ts'

describe('GET /log', () => {
  it('answers the newest lines, and only new ones to who has seen some', async () => {
    const { call, log } = await startApi()
    log.warn({ domain: 'a.test' }, 'canary one')
    const { json } = await call('GET', '/log')
    const seen = json.lines.find(({ line }: { line: { msg: string } }) => line.msg === 'canary one')
    expect(seen.line).toMatchObject({ level: 'warn', domain: 'a.test' })
    expect(json.last).toBe(json.lines.at(-1).number)
    log.warn('canary two')
    const next = await call('GET', `/log?after=${json.last}`)
    const texts = next.json.lines.map(({ line }: { line: { msg: string } }) => line.msg)
    expect(texts).toContain('canary two')
    expect(texts).not.toContain('canary one')
    expect((await call('GET', '/log?limit=1')).json.lines).toHaveLength(1)
  })

  it.each(['limit=0', 'limit=1001', 'after=-1', 'after=x', 'level=warn'])(
    'refuses %s',
    async (query) => {
      const { call } = await startApi()
      expect((await call('GET', `/log?${query}`)).status).toBe(400)
    },
  )
})
