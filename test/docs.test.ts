import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '..')
const SRC = join(ROOT, 'src')
const ARCHITECTURE = 'docs/architecture.md'
const PAGES = [
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
]

const readPage = (page: string) => readFileSync(join(ROOT, page), 'utf8')
const foldersIn = (folder: string) =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)

const FOLDERS = new Set(['src', 'test', 'bench', 'docs', 'systemd', '.ci', ...foldersIn(SRC)])
const PATH = /^\.?[\w-]+(?:[./][\w-]+)*\/?$/
const FILE = /\.(?:ts|js|json|md|yaml|service)$/
/** `Tunnels.create`, `Tunnels.#requireFree`, or a class that is known by its capitals. */
const NAME = /^([A-Z][a-z]+(?:[A-Z][a-z]\w*)?)(?:\.(#?[a-z]\w*))?$/
const DEFINITION = /^(?:export )?(?:class|interface|const|function|type) (\w+)(?: extends (\w+))?/gm

/** What a page has in backticks or in a drawing. */
function codeOf(text: string): string[] {
  const drawings = [...text.matchAll(/^```\w*\n(.*?)^```$/gms)].map(([, drawing = '']) => drawing)
  const prose = text.replace(/^```.*?^```$/gms, '')
  const inline = [...prose.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code)
  return [...inline, ...drawings.flatMap((drawing) => drawing.split(/[\s,:]+/))]
}

/** Paths of the repository, from its root or from src. */
function pathsIn(text: string): string[] {
  return codeOf(text).filter((code) => {
    const [first = '', ...more] = code.split('/')
    return PATH.test(code) && (FILE.test(code) || (more.length > 0 && FOLDERS.has(first)))
  })
}

/** The text of each file that defines a name, with the names that it builds on. */
function definitionsIn(folder: string) {
  const found = new Map<string, { text: string; parent: string | undefined }[]>()
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue
    const text = readFileSync(join(folder, file), 'utf8')
    for (const [, name = '', parent] of text.matchAll(DEFINITION)) {
      found.set(name, [...(found.get(name) ?? []), { text, parent }])
    }
  }
  return found
}

describe.each(PAGES)('%s', (page) => {
  it('names no path that is not there', () => {
    const paths = pathsIn(readPage(page))
    expect(paths.length).toBeGreaterThan(0)
    const isThere = (path: string) => [ROOT, SRC].some((base) => existsSync(join(base, path)))
    expect(paths.filter((path) => !isThere(path))).toEqual([])
  })
})

describe(ARCHITECTURE, () => {
  const text = readPage(ARCHITECTURE)

  it('has every floor, and every room of the three big ones', () => {
    const rooms = ['gateway', 'policy', 'agent'].flatMap((floor) =>
      foldersIn(join(SRC, floor)).map((room) => `${floor}/${room}`),
    )
    const all = [...foldersIn(SRC), ...rooms]
    expect(all.filter((room) => !text.includes(`\`${room}/\``))).toEqual([])
  })

  it('draws with names that the code has', () => {
    const definitions = definitionsIn(SRC)
    const has = (name: string, member: string | undefined): boolean =>
      (definitions.get(name) ?? []).some(
        ({ text: file, parent = '' }) =>
          !member ||
          file.includes(`${member}(`) ||
          file.includes(`${member}<`) ||
          has(parent, member),
      )
    const names = codeOf(text)
      .map((code) => NAME.exec(code))
      .filter((match) => match !== null)
      .filter(([, name = '', member]) => member || /[a-z][A-Z]/.test(name))
    expect(names.length).toBeGreaterThan(50)
    expect(names.filter(([, name = '', member]) => !has(name, member)).map(([it]) => it)).toEqual(
      [],
    )
  })
})
