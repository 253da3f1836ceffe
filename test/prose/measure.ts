/** A passage of prose and its place: a paragraph, a list item, a comment or a text of the program. */
export interface Passage {
  readonly text: string
  /** `file`, or `file:line`. */
  readonly where: string
}

export interface Sentence extends Passage {
  readonly words: number
  readonly pronouns: number
}

/** Shares are in percent; pronouns are per 1,000 words. */
export interface Figures {
  readonly words: number
  readonly sentences: number
  readonly mean: number
  readonly p90: number
  readonly over25: number
  readonly over40: number
  readonly paragraphP90: number
  readonly pronouns: number
}

export interface Measured {
  readonly figures: Figures
  readonly sentences: readonly Sentence[]
}

const WORD = /[A-Za-z0-9][\p{L}\p{N}_'’./-]*/gu
const PRONOUN =
  /\b(?:who|whoever|whom|whose|what|whatever|nobody|somebody|none|those|(?:the|that|this|another|other|older|newer|old|new) one|ones|one (?:that|who|which))\b/gi
const SENTENCE_END = /(?<=[.!?:])["')\]]*\s+(?=[A-Z0-9"'([])|(?<=[.!?])\s+/
/** Shorter ones are labels. */
const MIN_WORDS = 4

/** Sentence lengths, paragraph lengths and pronouns. Labels of up to three words are no sentences. */
export function measure(passages: readonly Passage[]): Measured {
  const paragraphs: number[] = []
  const sentences: Sentence[] = []
  let [words, pronouns] = [0, 0]
  for (const { text, where } of passages) {
    const paragraph = plain(text)
    const length = countWords(paragraph)
    if (length >= MIN_WORDS) paragraphs.push(length)
    words += length
    pronouns += countPronouns(paragraph)
    sentences.push(...sentencesOf(paragraph, where))
  }
  const lengths = sentences.map((sentence) => sentence.words)
  const over = (limit: number) => percent(lengths.filter((it) => it > limit).length, lengths.length)
  const figures = {
    words,
    sentences: lengths.length,
    mean: lengths.length === 0 ? 0 : lengths.reduce((sum, it) => sum + it, 0) / lengths.length,
    p90: percentile90(lengths),
    over25: over(25),
    over40: over(40),
    paragraphP90: percentile90(paragraphs),
    pronouns: words === 0 ? 0 : (1_000 * pronouns) / words,
  }
  return { figures, sentences }
}

/** The prose of Markdown: no front matter, code, HTML blocks, headings, tables or pictures. */
export function passagesOfMarkdown(page: string, where: string): Passage[] {
  const text = page
    .replace(/^---\n.*?\n---\n/s, '')
    .replace(/^([ \t]*)(```|~~~).*?^\s*\2[^\n]*$/gms, '\n')
    .replace(/<!--.*?-->/gs, '')
    .replace(/<(style|script|pre|table)\b.*?<\/\1>/gs, '\n')
  const passages: Passage[] = []
  let lines: string[] = []
  const flush = () => {
    if (lines.length > 0) passages.push({ text: lines.join(' '), where })
    lines = []
  }
  for (const line of text.split('\n')) {
    const trimmed = line.trim()
    const isIndentedCode = lines.length === 0 && /^(?: {4}|\t)\S/.test(line)
    if (/^$|^[#|]|^[-=~*^"]{3,}$/.test(trimmed) || isIndentedCode) {
      flush()
      continue
    }
    const item = /^(?:[-*+]|\d+[.)])\s+(.*)$/.exec(trimmed)
    if (item) flush()
    const content = item?.[1] ?? trimmed
    if (/^!?\[[^\]]*\]\([^)]*\)$/.test(content)) flush()
    else lines.push(content)
  }
  flush()
  return passages
}

/** The share of table cells with more than 25 words, in percent. */
export function longCellsOf(page: string): number {
  let [cells, long] = [0, 0]
  for (const line of page.replace(/^```.*?^```/gms, '').split('\n')) {
    if (!line.startsWith('|') || /^\|[\s:|-]+\|$/.test(line)) continue
    for (const cell of line
      .trim()
      .replace(/^\||\|$/g, '')
      .split(/(?<!\\)\|/)) {
      const words = countWords(cell.replace(/\]\([^)]*\)/g, ']').replace(/`[^`]+`/g, 'CODE'))
      if (words > 0) cells += 1
      if (words > 25) long += 1
    }
  }
  return percent(long, cells)
}

/** Comments of TypeScript or JavaScript: blocks, and runs of lines. */
export function commentsOf(source: string, where: string): Passage[] {
  const blocks = [...source.matchAll(/\/\*\*?(.*?)\*\//gs)].map(([, block = '']) =>
    block
      .split('\n')
      .map((line) => line.replace(/^\s*\*\s?/, '').trim())
      .join(' ')
      .trim(),
  )
  const runs: string[] = []
  const run: string[] = []
  for (const line of [...source.split('\n'), '']) {
    const [, comment] = /^\s*\/\/\s?(.*)/.exec(line) ?? []
    if (comment !== undefined) run.push(comment)
    else if (run.length > 0) runs.push(run.splice(0).join(' '))
  }
  return [...blocks, ...runs]
    .filter((text) => text.length >= 4 && !/^(?:biome|@|ts-)/.test(text))
    .map((text) => ({ text, where }))
}

/** How many comments begin with a pronoun, in percent, and the pronouns of all per 1,000 words. */
export function measureComments(comments: readonly Passage[]) {
  const indirect = comments.filter(({ text }) =>
    /^(?:What|Who|Whoever|Where|Until|Of)\b/.test(text),
  )
  const sum = (count: (text: string) => number) =>
    comments.reduce((total, { text }) => total + count(text), 0)
  const words = sum((text) => text.split(/\s+/).filter((word) => word !== '').length)
  return {
    comments: comments.length,
    indirect: percent(indirect.length, comments.length),
    pronouns: words === 0 ? 0 : (1_000 * sum(countPronouns)) / words,
  }
}

/** Text without markup; a piece of code is one word. */
function plain(text: string): string {
  return text
    .replace(/``?[^`]+``?/g, 'CODE')
    .replace(/!\[[^\]]*\]\([^)]*\)/g, '')
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/<[^>]+>/g, ' ')
    .replace(/[*_]{1,3}/g, '')
    .replace(/https?:\/\/\S+/g, 'URL')
}

function sentencesOf(paragraph: string, where: string): Sentence[] {
  return paragraph
    .replace(/\b(e\.g|i\.e|etc|vs|cf)\./g, '$1')
    .split(SENTENCE_END)
    .map((part) => {
      const text = part.trim()
      return { text, where, words: countWords(text), pronouns: countPronouns(text) }
    })
    .filter(({ words }) => words >= MIN_WORDS)
}

const countWords = (text: string) => text.match(WORD)?.length ?? 0
const countPronouns = (text: string) => text.match(PRONOUN)?.length ?? 0
const percent = (part: number, all: number) => (all === 0 ? 0 : (100 * part) / all)

function percentile90(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.9))] ?? 0
}
