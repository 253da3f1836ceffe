import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { markdownPages, ROOT } from '../helpers/document-part.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { commentsOf, longCellsOf, measure, measureComments, passagesOfMarkdown } from './measure.ts'
import { isFailed, reportOn, worstOf } from './report.ts'
import { GROUPS, type Group, NOT_TEXTS, TARGETS } from './targets.ts'
import { textsOf } from './texts.ts'

const words = (count: number) => `${'word '.repeat(count - 1)}end.`
const passage = (text: string) => ({ text, where: 'page.md' })

describe('the measures of sentences', () => {
  it('count words, and leave labels out', () => {
    const texts = [`${words(10)} ${words(20)}`, words(30), 'A short label.']
    const { figures } = measure(texts.map(passage))
    expect(figures).toMatchObject({ words: 63, sentences: 3, mean: 20, p90: 30, paragraphP90: 30 })
    expect(figures.over25).toBeCloseTo(100 / 3)
    expect(figures.over40).toBe(0)
  })

  it('take code, a link or a URL as its words', () => {
    const text =
      'Run `npm test -- --all of it`, see [the long page](https://example.com/a/b) for *more*.'
    expect(measure([passage(text)]).sentences).toMatchObject([{ words: 8 }])
  })

  it('end a sentence at a colon before a capital, and not after e.g.', () => {
    const text = 'The gateway says this: The device is not linked. Use a name, e.g. Camera or door.'
    expect(measure([passage(text)]).sentences.map((it) => it.words)).toEqual([4, 5, 7])
  })

  it('count pronouns per 1,000 words', () => {
    const text = 'Whoever asks gets the one that nobody uses, and another one. None of those.'
    expect(measure([passage(text)]).figures.pronouns).toBeCloseTo((1_000 * 6) / 14)
    expect(measure([passage('The whole other device is alone here.')]).figures.pronouns).toBe(0)
  })
})

describe('the prose of Markdown', () => {
  it('is paragraphs and list items', () => {
    const page = `# A heading of four words
A paragraph
over two lines.
- first item

1. second item:

   \`\`\`sh
   this is code and no prose
   \`\`\`

| a table | is no prose |
|---|---|
<!-- a comment is no prose -->
![a picture is no prose](picture.png)

    indented code is no prose
`
    expect(passagesOfMarkdown(page, 'page.md').map(({ text }) => text)).toEqual([
      'A paragraph over two lines.',
      'first item',
      'second item:',
    ])
  })

  it('has long cells', () => {
    const table = `| head | ${words(26)} |\n|---|---|\n| \`a | b\` | ${words(25)} |\n`
    expect(longCellsOf(table)).toBe(20)
  })
})

it('finds comments, and those that begin with a pronoun', () => {
  const source = `/** What it gives. */
const url = 'https://example.com'
// Two lines
// are a run.
/*
 * Reads the file.
 */
// biome-ignore lint: a directive
`
  const comments = commentsOf(source, 'a.ts')
  expect(comments.map(({ text }) => text)).toEqual([
    'What it gives.',
    'Reads the file.',
    'Two lines are a run.',
  ])
  const { indirect, pronouns } = measureComments(comments)
  expect(indirect).toBeCloseTo(100 / 3)
  expect(pronouns).toBeCloseTo(1_000 / 11)
})

describe('the texts of a module', () => {
  const textsIn = (source: string) => textsOf(source, 'a.ts').map(({ text }) => text)

  it('are literals of four words or more, with their line', () => {
    const source = `import { a } from 'a module of five words'
type Kind = 'a literal that is a type'
const short = 'not four words'
throw new Error('The device is not connected.' as string)`
    expect(textsOf(source, 'a.ts')).toEqual([
      { text: 'The device is not connected.', where: 'a.ts:4' },
    ])
  })

  it('are templates and joined literals as a whole', () => {
    const nested = 'const a = `Wait $' + '{n} s: $' + '{b ? `or ask the owner of it` : x}.`'
    expect(textsIn(nested)).toEqual(['or ask the owner of it'])
    expect(textsIn('const a = `Wait for $' + '{n} more seconds.`')).toEqual([
      'Wait for CODE more seconds.',
    ])
    expect(textsIn("const a = 'The device ' + name + ' is not ' + 'here.'")).toEqual([
      'The device CODE is not here.',
    ])
  })

  it('are neither SQL nor code', () => {
    const source = `const sql = 'SELECT name FROM devices ORDER BY name'
const more = \`, x AS (a) WHERE it is one of these\`
const path = 'M4 5h16v10H4zM9 19h6M12 15v4'`
    expect(textsIn(source)).toEqual([])
  })
})

describe('the report', () => {
  const group = (name: string, paths: string[], more: Partial<Group> = {}): Group => {
    return { name, kind: 'texts', paths, isEnforced: true, ...more }
  }
  function folderWith(files: Record<string, string>): string {
    const folder = temporaryFolder()
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true })
      writeFileSync(join(folder, path), text)
    }
    return folder
  }

  it('fails for an enforced group alone, and lists its worst sentences', () => {
    const bad = `${words(30)} Nobody knows what it is. ${words(8)}`
    const root = folderWith({ 'src/a.ts': '', 'good.md': words(8), 'bad.md': bad })
    const page = (path: string, isEnforced: boolean) =>
      group(path, [path], { kind: 'page', isEnforced })
    const groups = [page('good.md', true), page('bad.md', true), page('bad.md', false)]
    const reports = reportOn(root, groups, groups)
    expect(reports.map(isFailed)).toEqual([false, true, false])
    const [, failed] = reports
    expect(failed?.missed).toEqual(['mean', 'p90', 'over25', 'pronouns'])
    expect(failed && worstOf(failed, 5).map(({ text }) => text.slice(0, 11))).toEqual([
      'Nobody know',
      'word word w',
    ])
  })

  it('counts a source file in one group, by the longest beginning of its path', () => {
    const text = (subject: string) => `export const a = 'the ${subject} is not there'`
    const root = folderWith({
      'src/gateway/a.ts': text('gateway'),
      'src/gateway/page/b.js': text('page'),
      'src/agent/c.ts': text('agent'),
    })
    const all = [group('gateway', ['src/gateway/']), group('page', ['src/gateway/page/'])]
    const reports = reportOn(root, all, all)
    expect(reports.map(({ sentences }) => sentences.map((it) => it.text))).toEqual([
      ['the gateway is not there'],
      ['the page is not there'],
    ])
  })

  it('has every page and every source file', () => {
    const pages = markdownPages(join(ROOT, 'docs'))
    const named = GROUPS.flatMap(({ paths }) => paths)
    expect(pages.filter((page) => !named.includes(`docs/${page}`))).toEqual([])
    expect([...named, ...NOT_TEXTS].filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
    const sources = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') || name.endsWith('.js'))
      .map((name) => `src/${name}`)
    const texts = GROUPS.filter(({ kind }) => kind === 'texts').flatMap(({ paths }) => paths)
    expect(sources.filter((file) => !texts.some((path) => file.startsWith(path)))).toEqual([])
  })

  it('holds README, changelog and all texts to the targets', () => {
    const enforced = GROUPS.filter(({ isEnforced }) => isEnforced).map(({ name }) => name)
    expect(GROUPS.filter((it) => it.kind === 'texts' && !it.isEnforced)).toEqual([])
    expect(enforced).toEqual(expect.arrayContaining(['README.md', 'CHANGELOG.md']))
    expect(TARGETS.page).toMatchObject({ mean: 14, p90: 24, over25: 7, pronouns: 5 })
  })
})
