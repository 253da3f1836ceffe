import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ERRORS } from '../src/base/app-error.ts'
import { deviceNames } from '../src/gateway/access/device-names.ts'
import { EDGE_ERRORS } from '../src/gateway/ingress/common/edge-error.ts'
import { ACTIONS, policyJsonSchema } from '../src/policy/actions/all-actions.ts'
import { expectTable, markdownPages, ROOT } from './helpers/document-part.ts'
import { fieldRow, fieldsOf } from './helpers/schema-fields.ts'

const SRC = join(ROOT, 'src')
const INDEX = 'docs/README.md'
const OVERVIEW = 'docs/internals/overview.md'
const ALL_PAGES = markdownPages(ROOT)
const DOCS = ALL_PAGES.filter((page) => page.startsWith('docs/'))
const PAGES = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', ...DOCS]
const LINK = /\[[^\]]*\]\(([^)\s]+)\)/g

const readPage = (page: string) => readFileSync(join(ROOT, page), 'utf8')
const foldersIn = (folder: string) =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)

const FOLDERS = new Set([
  'src',
  'test',
  'bench',
  'docs',
  'packaging',
  'systemd',
  '.ci',
  ...foldersIn(SRC),
])
/** What a build, the programs or their users make. */
const MADE = new Set([
  'dist/main.js',
  'camera.yaml',
  'closed.yaml',
  'configuration.yaml',
  'fleet.yaml',
  'packaging/compose/join',
  'limits.json',
  'redirect.yaml',
  'login.yaml',
  'policy.yaml',
  'policy.schema.json',
  'sbom.cdx.json',
])
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
    return (
      PATH.test(code) &&
      !MADE.has(code) &&
      (FILE.test(code) || (more.length > 0 && FOLDERS.has(first)))
    )
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
    const isThere = (path: string) => [ROOT, SRC].some((base) => existsSync(join(base, path)))
    expect(paths.filter((path) => !isThere(path))).toEqual([])
  })
})

it('finds the paths that pages name', () => {
  expect(PAGES.flatMap((page) => pathsIn(readPage(page))).length).toBeGreaterThan(200)
})

/** The anchors of a page, as GitHub makes them of its headings. */
function anchorsIn(text: string): Set<string> {
  const headings = [...text.replace(/^```.*?^```$/gms, '').matchAll(/^#+ (.*)$/gm)]
  return new Set(
    headings.map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  )
}

/** The links of a page that lead nowhere: a file that is not there, or no such heading. */
function deadLinksIn(page: string): string[] {
  const text = readPage(page)
  const links = [...text.matchAll(LINK)].map(([, link = '']) => link)
  return links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false
    const [file = '', anchor] = link.split('#')
    const target = file === '' ? page : join(dirname(page), file)
    if (!existsSync(join(ROOT, target))) return true
    return anchor !== undefined && !anchorsIn(readPage(target)).has(anchor)
  })
}

describe('links', () => {
  it.each(ALL_PAGES)('of %s lead somewhere', (page) => {
    expect(deadLinksIn(page)).toEqual([])
  })

  it('lead from the README to the index, and from the index to each page', () => {
    const linksOf = (page: string) =>
      [...readPage(page).matchAll(LINK)].map(([, link = '']) => join(dirname(page), link))
    expect(linksOf('README.md')).toEqual(
      expect.arrayContaining([INDEX, 'CONTRIBUTING.md', 'SECURITY.md']),
    )
    const links = linksOf(INDEX)
    expect(DOCS.filter((page) => page !== INDEX && !links.includes(page))).toEqual([])
  })
})

describe('the tables', () => {
  it('have every error of the agent API', () => {
    const rows = Object.entries(ERRORS).map(([code, { status, title }]) => {
      return [status, `\`${code}\``, title]
    })
    expectTable('docs/reference/errors.md', 'errors', ['status', 'code', 'title'], rows)
  })

  it('have no error that nothing answers', () => {
    const sources = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && name !== 'base/app-error.ts')
      .map((name) => readFileSync(join(SRC, name), 'utf8'))
      .join()
    expect(Object.keys(ERRORS).filter((code) => !sources.includes(`'${code}'`))).toEqual([])
  })

  it('have everything that the gateway answers visitors itself', () => {
    const rows = Object.entries(EDGE_ERRORS).map(([code, { status, sentence }]) => {
      return [status, `\`${code}\``, sentence]
    })
    expectTable('docs/reference/errors.md', 'edge-errors', ['status', 'code', 'it says'], rows)
  })

  it('have every policy action with its phases', () => {
    const described = [
      ...readPage('docs/reference/policies.md').matchAll(
        /^\| `([a-z-]+)` \| ((?:connect|request|response)[a-z, ]*) \|/gm,
      ),
    ].map(([, type, phases]) => [type, phases])
    const known = [...ACTIONS.values()].map(({ type, phases }) => {
      return [type, phases.map((phase) => phase.replace(/^on_(tcp|http)_/, '')).join(', ')]
    })
    expect(described).toEqual(known.sort())
  })
})

describe('the page of the policy actions', () => {
  const PAGE = 'docs/reference/policy-actions.md'
  const { $defs } = JSON.parse(JSON.stringify(policyJsonSchema()))

  it('has a section for each action', () => {
    const sections = [...readPage(PAGE).matchAll(/^## (\S+)$/gm)].map(([, type]) => type)
    expect(sections).toEqual([...ACTIONS.keys()])
  })

  it.each([...ACTIONS.keys()])('has every field of %s', (type) => {
    const rows = fieldsOf($defs[type].properties.config).map(fieldRow)
    if (rows.length > 0) expectTable(PAGE, type, ['field', 'values', 'default', 'meaning'], rows)
  })
})

it('the page of the agent API has each request', () => {
  const document = readFileSync(join(ROOT, 'test/openapi/fixtures/agent.json'), 'utf8')
  const paths: Record<string, object> = JSON.parse(document).paths
  const page = readPage('docs/reference/agent-api.md')
  const missing = Object.keys(paths).filter((path) => !page.includes(` ${path}\``))
  expect(missing).toEqual([])
})

describe.each(['agent', 'management'])('the page of the %s API', (name) => {
  it('names each first part of a path', () => {
    const document = readFileSync(join(ROOT, `test/openapi/fixtures/${name}.json`), 'utf8')
    const page = readPage(`docs/reference/${name}-api.md`)
    const named = new Set(
      codeOf(page).flatMap((code) =>
        Array.from(code.matchAll(/(?:^|\s)\/([\w.]+)/g), ([, part]) => part),
      ),
    )
    const parts = Object.keys(JSON.parse(document).paths).map((path) => path.split('/')[1])
    expect(parts.filter((part) => !named.has(part))).toEqual([])
  })
})

describe('docs/internals', () => {
  it('has every floor, and every room of the three big ones', () => {
    const rooms = ['gateway', 'policy', 'agent'].flatMap((floor) =>
      foldersIn(join(SRC, floor)).map((room) => `${floor}/${room}`),
    )
    const all = [...foldersIn(SRC), ...rooms]
    const overview = readPage(OVERVIEW)
    expect(all.filter((room) => !overview.includes(`\`${room}/\``))).toEqual([])
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
    const names = DOCS.filter((page) => dirname(page) === dirname(OVERVIEW))
      .flatMap((page) => codeOf(readPage(page)))
      .map((code) => NAME.exec(code))
      .filter((match) => match !== null)
      .filter(([, name = '', member]) => member || /[a-z][A-Z]/.test(name))
    expect(names.length).toBeGreaterThan(50)
    expect(names.filter(([, name = '', member]) => !has(name, member)).map(([it]) => it)).toEqual(
      [],
    )
  })
})

describe('the examples of tunnels for a device that has joined', () => {
  it('use names below the name of the device, which is the address of its API', () => {
    const deployments = ['compose/agent.yaml', 'kubernetes/agent.yaml']
    const places = [...PAGES, ...deployments.map((file) => `packaging/${file}`)]
    const examples = places.flatMap((place) =>
      [...readPage(place).matchAll(/ tunnels add .*?(\S+\.site\.example\.com)/g)].map(
        ([, name = '']) => `${place}: ${name}`,
      ),
    )
    expect(examples.length).toBeGreaterThan(3)
    // Of an invitation for cam01, with the wildcard of these pages.
    const names = deviceNames('cam01', { domain: '*.site.example.com' })
    const own = 'problem' in names ? '' : names.agentDomain
    expect(examples.filter((it) => !it.endsWith(`.${own}`))).toEqual([])
  })
})
