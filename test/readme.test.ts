import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT } from './helpers/document-part.ts'

const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const BENCH = readFileSync(join(ROOT, 'bench/README.md'), 'utf8')
const MAX_BYTES = 7_000

/** The cells of the row that begins so, without Markdown's bars. */
function rowOf(page: string, first: string): string[] {
  const line = page.split('\n').find((text) => text.startsWith(`| ${first} |`)) ?? ''
  return line.split('|').map((cell) => cell.trim())
}

describe('the README', () => {
  it('is short: details are in docs/', () => {
    expect(Buffer.byteLength(README)).toBeLessThanOrEqual(MAX_BYTES)
  })

  it('leads from the benefit to the documentation', () => {
    expect([...README.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)).toEqual([
      'Try it in five minutes',
      'How it works',
      'Compared with frp, cloudflared and ngrok',
      'Documentation',
    ])
  })

  it('shows the picture before the first heading', () => {
    const [introduction = ''] = README.split('\n## ')
    expect(introduction).toMatch(/^!\[[^\]]+\]\(docs\/device-page\.png\)$/m)
  })

  it('compares with the figures of the benchmarks', () => {
    const at50 = (program: string) => rowOf(BENCH, program)[2]?.split('; ')[1]
    const [, , ours, frp] = rowOf(README, 'Small requests per second, 50 connections')
    expect([ours, frp]).toEqual([
      at50('device-agent, Node 24'),
      `${at50('frp, HTTP by host')} (TCP: ${at50('frp, TCP')})`,
    ])
    const agentMb = (program: string) => rowOf(BENCH, program)[6]?.split(' + ')[0]
    const [, , ourMb, frpMb] = rowOf(README, "Agent's memory, 200 connections")
    expect([ourMb, frpMb]).toEqual([
      `${agentMb('device-agent, Node 24')} MB`,
      `${agentMb('frp, TCP')} MB`,
    ])
  })
})
