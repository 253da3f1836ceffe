import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT } from './helpers/document-part.ts'

const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const MAX_BYTES = 8_000

describe('the README', () => {
  it('is short: what somebody looks up is in docs/', () => {
    expect(Buffer.byteLength(README)).toBeLessThanOrEqual(MAX_BYTES)
  })

  it('leads from what it is to where to go on', () => {
    expect([...README.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)).toEqual([
      'Why not frp, cloudflared or ngrok alone',
      'Two commands',
      'Five minutes',
      'Where to go on',
    ])
  })
})
