import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'

export const ROOT = join(import.meta.dirname, '../..')
/** Folders that installs, builds and tests make, beside those that begin with a dot. */
const MADE = /^(?:\..*|node_modules|dist|coverage|packages|reports|data)$/

/** The Markdown pages of a folder, by their path in it. */
export function markdownPages(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      if (!entry.isDirectory()) return entry.name.endsWith('.md') ? [entry.name] : []
      if (MADE.test(entry.name)) return []
      return markdownPages(join(folder, entry.name)).map((page) => join(entry.name, page))
    })
    .sort()
}

/**
 * Holds the part of a page between `<!-- name -->` and `<!-- /name -->` to a table that is made from the
 * code; `DOCS_UPDATE=1` writes it.
 */
export function expectTable(
  page: string,
  name: string,
  heads: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): void {
  const path = join(ROOT, page)
  const text = readFileSync(path, 'utf8')
  const line = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |`
  const table = [line(heads), `|${heads.map(() => '---|').join('')}`, ...rows.map(line)].join('\n')
  const [open, close] = [`<!-- ${name} -->\n`, `<!-- /${name} -->`]
  const [start, end] = [text.indexOf(open), text.indexOf(close)]
  expect(start, `${page} has ${open}`).toBeGreaterThan(-1)
  expect(end, `${page} has ${close}`).toBeGreaterThan(start)
  const updated = `${text.slice(0, start)}${open}${table}\n${text.slice(end)}`
  if (process.env.DOCS_UPDATE) writeFileSync(path, updated)
  else expect(text).toBe(updated)
}
