import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ERRORS } from '../src/base/app-error.ts'
import { ACTIONS } from '../src/policy/actions/all-actions.ts'
import { settingRows } from '../src/settings.ts'

const README = join(import.meta.dirname, '../README.md')
const SOURCES = join(import.meta.dirname, '../src')

/** The part of the README that is made from the code: `README_UPDATE=1 npm test` writes it. */
function expectPart(name: string, expected: string): void {
  const text = readFileSync(README, 'utf8')
  const part = new RegExp(`(<!-- ${name} -->\n)[\\s\\S]*?(\n<!-- /${name} -->)`)
  const updated = text.replace(part, (_, open: string, close: string) => open + expected + close)
  if (process.env.README_UPDATE) writeFileSync(README, updated)
  else expect(text).toBe(updated)
}

describe('the README', () => {
  it('has every setting with its default and meaning', () => {
    const rows = settingRows().map(({ name, fallback, meaning }) => {
      return `| \`${name}\` | ${fallback === '' ? '' : `\`${fallback}\``} | ${meaning} |`
    })
    expectPart('settings', ['| name | default | meaning |', '|---|---|---|', ...rows].join('\n'))
  })

  it('has every error of the agent API', () => {
    const rows = Object.entries(ERRORS).map(([code, { status, title }]) => {
      return `| ${status} | \`${code}\` | ${title} |`
    })
    expectPart('errors', ['| status | code | title |', '|---|---|---|', ...rows].join('\n'))
  })

  it('has no error that nothing answers', () => {
    const sources = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && name !== 'base/app-error.ts')
      .map((name) => readFileSync(join(SOURCES, name), 'utf8'))
      .join()
    expect(Object.keys(ERRORS).filter((code) => !sources.includes(`'${code}'`))).toEqual([])
  })

  it('has every policy action with its phases', () => {
    const text = readFileSync(README, 'utf8')
    const rows = [
      ...text.matchAll(/^\| `([a-z-]+)` \| ((?:connect|request|response)[a-z, ]*) \|/gm),
    ]
    const described = rows.map(([, type, phases]) => [type, phases])
    const known = [...ACTIONS.values()].map(({ type, phases }) => {
      return [type, phases.map((phase) => phase.replace(/^on_(tcp|http)_/, '')).join(', ')]
    })
    expect(described).toEqual(known.sort())
  })
})
