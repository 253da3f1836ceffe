import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { markdownPages, ROOT } from '../helpers/document-part.ts'

/** A shell command of a page, with all its lines. */
export interface PageCommand {
  readonly page: string
  /** Of its first line, from 1. */
  readonly line: number
  readonly text: string
}

/** A fenced block of a page. */
interface Block {
  readonly language: string
  /** Of its first line of content, from 1. */
  readonly line: number
  readonly lines: readonly string[]
}

const FENCE = /^( *)```(\w*)$/
const OUTPUT = /^#/

/** README.md and all pages below docs/, except the internals. */
export function documentedPages(): string[] {
  return markdownPages(ROOT).filter(
    (page) => page === 'README.md' || /^docs\/(?!internals\/)/.test(page),
  )
}

function blocksOf(page: string): Block[] {
  const blocks: Block[] = []
  let open: { language: string; indent: number; line: number; lines: string[] } | undefined
  for (const [index, text] of readFileSync(join(ROOT, page), 'utf8').split('\n').entries()) {
    const [, indent = '', language = ''] = FENCE.exec(text) ?? []
    if (!FENCE.test(text)) open?.lines.push(text.slice(open.indent))
    else if (open) {
      blocks.push(open)
      open = undefined
    } else open = { language, indent: indent.length, line: index + 2, lines: [] }
  }
  return blocks
}

/** The content of the blocks of a page in one language. */
export function textsOf(page: string, language: string): string[] {
  return blocksOf(page)
    .filter((block) => block.language === language)
    .map(({ lines }) => `${lines.join('\n')}\n`)
}

/** Number of blocks that show output, settings or files. */
export const outputBlocks = (page: string): number =>
  blocksOf(page).filter(({ language }) => language !== 'sh').length

/** A command continues on the next line while bash expects more. */
function isWhole(text: string): boolean {
  if (text.endsWith('\\')) return false
  const { status, stderr } = spawnSync('bash', ['-n'], { input: `${text}\n`, encoding: 'utf8' })
  return status === 0 && !stderr.includes('here-document')
}

/** The commands of a page in their order. Comments and shown output are left out. */
export function commandsOf(page: string): PageCommand[] {
  const commands: PageCommand[] = []
  for (const { lines, line } of blocksOf(page).filter(({ language }) => language === 'sh')) {
    let text = ''
    let first = line
    for (const [index, next] of lines.entries()) {
      if (text === '' && (next.trim() === '' || OUTPUT.test(next))) continue
      if (text === '') first = line + index
      text = text === '' ? next : `${text}\n${next}`
      if (!isWhole(text)) continue
      commands.push({ page, line: first, text })
      text = ''
    }
    if (text !== '') throw new Error(`${page}:${first}: the command does not end: ${text}`)
  }
  return commands
}
