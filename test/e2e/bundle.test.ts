import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { MAIN } from '../helpers/program.ts'

const DIST = dirname(MAIN)

/** The file and those that it loads by a statement, and they. */
function loadedBy(file: string, loaded = new Set<string>()): Set<string> {
  if (loaded.has(file)) return loaded
  loaded.add(file)
  const text = readFileSync(join(DIST, file), 'utf8')
  for (const [, name = ''] of text.matchAll(/(?:\bfrom|\bimport)\s*["']\.\/([^"']+)["']/g)) {
    loadedBy(name, loaded)
  }
  return loaded
}

const lazy = (name: string) => readdirSync(DIST).find((it) => it.startsWith(`${name}-`)) ?? name

describe('the bundle', () => {
  it('has few files that run loads before it listens, and none of them of a gateway', () => {
    const loaded = loadedBy(lazy('supervised-daemon'), loadedBy('main.js'))
    expect(loaded.size).toBeLessThanOrEqual(12)
    expect([...loaded]).toContain('joined-agent.js')
    expect([...loaded]).not.toContain('joined-gateway.js')
  })

  it('spares commands of a technician the agent', () => {
    for (const command of ['local-agent', 'status-view', 'tunnel-view', 'install']) {
      expect([...loadedBy(lazy(command))], command).not.toContain('joined-agent.js')
      expect([...loadedBy(lazy(command))], command).not.toContain('joined-agent-gateway.js')
    }
  })

  it('has every file that one of its files names', () => {
    const files = readdirSync(DIST).filter((it) => it.endsWith('.js'))
    const named = files.flatMap((file) =>
      Array.from(
        readFileSync(join(DIST, file), 'utf8').matchAll(/["']\.\/([\w-]+\.js)["']/g),
        ([, name = '']) => name,
      ),
    )
    expect(named.filter((name) => !files.includes(name))).toEqual([])
  })
})
