import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, expect, it } from 'vitest'

const SRC = join(import.meta.dirname, '../src')

/** Top floor first: a file imports from its own room or from a floor below. */
const FLOORS = [
  ['main.ts'],
  ['cli'],
  ['daemon.ts'],
  ['config.ts'],
  ['settings.ts'],
  ['api', 'gateway'],
  ['agent'],
  ['policy', 'muxado', 'http', 'store'],
  ['base'],
]
const WINGS = ['agents', 'ingress', 'management']
/** Rooms that meet only on the wire, although one stands above the other. */
const STRANGERS = [
  ['gateway', 'agent'],
  ['gateway', 'api'],
]

const roomOf = (file: string) => file.split('/')[0] ?? ''
const floorOf = (room: string) => FLOORS.findIndex((rooms) => rooms.includes(room))
const wingOf = (file: string) =>
  roomOf(file) === 'gateway' ? WINGS.find((wing) => file.startsWith(`gateway/${wing}/`)) : undefined

function importsOf(file: string): string[] {
  const text = readFileSync(join(SRC, file), 'utf8')
  const specifiers = [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(
    (m) => m[1] ?? '',
  )
  return specifiers.map((specifier) => normalize(join(dirname(file), specifier)))
}

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts'))
  .sort()

describe('the floors of the house', () => {
  it('has files', () => {
    expect(files.length).toBeGreaterThan(10)
  })

  it.each(files)('%s imports only from its own room or from below', (file) => {
    const room = roomOf(file)
    expect(floorOf(room), `${room} stands on no floor`).toBeGreaterThanOrEqual(0)
    for (const target of importsOf(file)) {
      const targetRoom = roomOf(target)
      if (targetRoom === room) {
        const from = wingOf(file)
        const to = wingOf(target)
        expect(!from || !to || from === to, `${file} reaches into ${target}`).toBe(true)
        continue
      }
      expect(floorOf(targetRoom), `${file} imports up or sideways: ${target}`).toBeGreaterThan(
        floorOf(room),
      )
      for (const [a, b] of STRANGERS) {
        expect(room === a && targetRoom === b, `${file} must not know ${target}`).toBe(false)
      }
    }
  })
})

describe('the expression library', () => {
  it('is known to one file', () => {
    const isUser = (file: string) =>
      /'@bufbuild\/cel['/]/.test(readFileSync(join(SRC, file), 'utf8'))
    expect(files.filter(isUser)).toEqual(['policy/expression/expression.ts'])
  })
})

describe('SQLite', () => {
  it('is loaded by one file, which picks the version that fits this Node', () => {
    const isUser = (file: string) => /'better-sqlite3/.test(readFileSync(join(SRC, file), 'utf8'))
    expect(files.filter(isUser)).toEqual(['store/sqlite.ts'])
  })
})

describe('the bundle', () => {
  it.each(files)('%s takes zod as a namespace, so that only what is used is bundled', (file) => {
    expect(readFileSync(join(SRC, file), 'utf8')).not.toMatch(/import \{ z \} from 'zod'/)
  })
})

describe('deadlines', () => {
  it.each(files)('%s does not combine signals, which Node 20 loses timeouts of', (file) => {
    expect(readFileSync(join(SRC, file), 'utf8')).not.toContain('AbortSignal.any(')
  })
})
