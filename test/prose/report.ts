import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  commentsOf,
  longCellsOf,
  measure,
  measureComments,
  type Passage,
  passagesOfMarkdown,
  type Sentence,
} from './measure.ts'
import { type Group, NOT_TEXTS, TARGETS } from './targets.ts'
import { textsOf } from './texts.ts'

export interface Report {
  readonly name: string
  readonly isEnforced: boolean
  readonly figures: Readonly<Record<string, number>>
  /** The figures above their target. */
  readonly missed: readonly string[]
  readonly sentences: readonly Sentence[]
}

/** Measures `chosen`, some of the groups `all`, in the folder `root`. */
export function reportOn(
  root: string,
  all: readonly Group[],
  chosen: readonly Group[],
): readonly Report[] {
  const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((name) => /(?<!\.d)\.(?:ts|js)$/.test(name))
    .map((name) => `src/${name}`)
    .sort()
  const read = (path: string) => readFileSync(join(root, path), 'utf8')
  return chosen.map((group) => {
    const { name, kind, isEnforced } = group
    const { passages, more } = passagesOf(group, read, () => filesOf(group, all, sources))
    const { figures, sentences } = measure(passages)
    const found: Record<string, number> = { ...figures, ...more }
    const missed = Object.entries(TARGETS[kind])
      .filter(([figure, most]) => (found[figure] ?? 0) > most)
      .map(([figure]) => figure)
    return { name, isEnforced, figures: found, missed, sentences }
  })
}

/** An enforced group misses its target. */
export function isFailed({ isEnforced, missed }: Report): boolean {
  return isEnforced && missed.length > 0
}

/** The sentences that cost most: words above 25, and pronouns. */
export function worstOf({ sentences }: Report, count: number): Sentence[] {
  const cost = ({ words, pronouns }: Sentence) => Math.max(0, words - 25) + 6 * pronouns
  return sentences
    .filter((sentence) => cost(sentence) > 0)
    .sort((a, b) => cost(b) - cost(a))
    .slice(0, count)
}

/** The source files of a group: no other group of its kind names a longer beginning of their path. */
function filesOf({ kind, paths }: Group, all: readonly Group[], sources: readonly string[]) {
  const longest = (file: string, among: readonly string[]) =>
    Math.max(0, ...among.filter((path) => file.startsWith(path)).map((path) => path.length))
  const known = all.filter((group) => group.kind === kind).flatMap((group) => group.paths)
  return sources.filter((file) => {
    const own = longest(file, paths)
    return own > 0 && own === longest(file, known)
  })
}

function passagesOf(
  { kind, paths }: Group,
  read: (path: string) => string,
  files: () => readonly string[],
): { passages: Passage[]; more: Readonly<Record<string, number>> } {
  if (kind === 'page') {
    const [path = ''] = paths
    const text = read(path)
    return { passages: passagesOfMarkdown(text, path), more: { longCells: longCellsOf(text) } }
  }
  if (kind === 'texts') {
    const modules = files().filter((file) => !NOT_TEXTS.includes(file))
    return { passages: modules.flatMap((file) => textsOf(read(file), file)), more: {} }
  }
  const passages = files().flatMap((file) => commentsOf(read(file), file))
  return { passages, more: measureComments(passages) }
}
