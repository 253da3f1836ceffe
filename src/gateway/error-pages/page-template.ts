import { type ErrorValues, escapeHtml } from './error-kind.ts'

/** Largest own page, as UTF-8. */
export const MAX_PAGE_BYTES = 65_536
/** Maximum number of placeholders: values are short, so a page stays below twice its size. */
const MAX_PLACEHOLDERS = 200

const READERS = {
  status: ({ status }: ErrorValues) => String(status),
  title: ({ title }: ErrorValues) => title,
  message: ({ message }: ErrorValues) => message,
  host: ({ host }: ErrorValues) => host,
  request_id: ({ requestId }: ErrorValues) => requestId,
  code: ({ code = '' }: ErrorValues) => code,
  retry_after: ({ retryAfterS }: ErrorValues) =>
    retryAfterS === undefined ? '' : `${retryAfterS}`,
} as const

type Placeholder = keyof typeof READERS
/** Names of placeholders, for messages and docs. */
export const PLACEHOLDERS = Object.keys(READERS) as readonly Placeholder[]

/** An own page that cannot be used; lines and columns begin at 1. */
export class PageProblem extends Error {
  override readonly name = 'PageProblem'
  readonly line: number
  readonly column: number

  constructor(message: string, html: string, at: number) {
    const before = html.slice(0, at).split('\n')
    const [line, column] = [before.length, (before.at(-1)?.length ?? 0) + 1]
    super(`Line ${line}, column ${column}: ${message}`)
    this.line = line
    this.column = column
  }
}

/** A checked own page. Values only stand where HTML escapes make them harmless. */
export class PageTemplate {
  /** Texts, with a placeholder between each two. */
  readonly #texts: readonly string[]
  readonly #names: readonly Placeholder[]

  private constructor(texts: readonly string[], names: readonly Placeholder[]) {
    this.#texts = texts
    this.#names = names
  }

  /** Throws a PageProblem. */
  static parse(html: string): PageTemplate {
    checkText(html)
    const texts: string[] = []
    const names: Placeholder[] = []
    const places = new PlaceReader(html)
    let from = 0
    for (let at = html.indexOf('{{'); at !== -1; at = html.indexOf('{{', from)) {
      const end = html.indexOf('}}', at)
      const name = end === -1 ? '' : html.slice(at + 2, end).trim()
      if (!isPlaceholder(name)) throw unknownPlaceholder(name, html, at)
      const problem = /<\/?$/.test(html.slice(Math.max(0, at - 2), at))
        ? IN_TAG
        : places.problemAt(at)
      if (problem !== undefined) throw new PageProblem(problem, html, at)
      if (names.length === MAX_PLACEHOLDERS) {
        throw new PageProblem(`A page has at most ${MAX_PLACEHOLDERS} placeholders.`, html, at)
      }
      texts.push(html.slice(from, at))
      names.push(name)
      from = end + 2
    }
    texts.push(html.slice(from))
    return new PageTemplate(texts, names)
  }

  render(values: ErrorValues): string {
    let page = this.#texts[0] ?? ''
    for (const [at, name] of this.#names.entries()) {
      page += escapeHtml(READERS[name](values)) + (this.#texts[at + 1] ?? '')
    }
    return page
  }
}

const isPlaceholder = (name: string): name is Placeholder => Object.hasOwn(READERS, name)

function checkText(html: string): void {
  const bytes = Buffer.byteLength(html)
  if (bytes > MAX_PAGE_BYTES) {
    throw new PageProblem(
      `The page has ${bytes} bytes; at most ${MAX_PAGE_BYTES} are allowed.`,
      html,
      0,
    )
  }
  if (html.trim() === '') throw new PageProblem('The page is empty.', html, 0)
  const nul = html.indexOf('\0')
  if (nul !== -1) throw new PageProblem('The page has a NUL character.', html, nul)
  // Half a surrogate pair cannot be encoded as UTF-8.
  const bad = html.search(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/)
  if (bad !== -1)
    throw new PageProblem('The page has half a surrogate pair, which is no character.', html, bad)
}

function unknownPlaceholder(name: string, html: string, at: number): PageProblem {
  const shown = /^[\w .-]{1,40}$/.test(name)
    ? `{{${name}}} is unknown`
    : 'This placeholder is not valid'
  const known = PLACEHOLDERS.map((it) => `{{${it}}}`).join(', ')
  return new PageProblem(
    `${shown}. Placeholders are ${known}. For two braces as text, write &#123;{.`,
    html,
    at,
  )
}

/** Elements whose content is not read as HTML. In `title` and `textarea`, escapes work. */
const RAW =
  /^<(script|style|xmp|iframe|noembed|noframes|noscript|plaintext|title|textarea)(?=[\s/>])/i
const ESCAPED: ReadonlySet<string> = new Set(['title', 'textarea'])
/** Elements in which browsers may read the content of raw elements as HTML. */
const OTHER_RULES: ReadonlySet<string> = new Set(['svg', 'math', 'select', 'frameset'])
/** Attributes that show or send their value. Others, as `onclick` and `srcdoc`, may run it. */
const HARMLESS = /^(?:href|content|alt|title|value|class|id|datetime|aria-[a-z]+|data-[a-z0-9-]+)$/i
/** One attribute as HTML reads it, with its name and what its value begins with. */
const ATTRIBUTE = /[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)?(?:[\t\n\f\r ]*(=)[\t\n\f\r ]*)?/y

const COMMENT = /<!--(?:-?>|.*?--!?>)/sy

/** A part of a page: text, or why it may have no placeholder. */
interface Place {
  readonly end: number
  readonly problem: string | undefined
}

/** Reads a page from start to end, and tells which of its parts may have placeholders. */
class PlaceReader {
  readonly #html: string
  #at = 0
  /** Set inside a tag. */
  #tagOf: string | undefined
  /** Open elements of `OTHER_RULES`. */
  #depth = 0
  #place: Place = { end: 0, problem: undefined }

  constructor(html: string) {
    this.#html = html
  }

  /** Offsets must increase. */
  problemAt(offset: number): string | undefined {
    while (this.#place.end <= offset) {
      this.#place = this.#tagOf === undefined ? this.#readText() : this.#readTag(this.#tagOf)
      this.#at = this.#place.end
    }
    return this.#place.problem
  }

  #endOf(text: string, from: number): number {
    const at = this.#html.indexOf(text, from)
    return at === -1 ? Number.POSITIVE_INFINITY : at + text.length
  }

  /** Browsers also end a comment at `--!>`, and at once in `<!-->` and `<!--->`. */
  #endOfComment(at: number): number {
    COMMENT.lastIndex = at
    return COMMENT.test(this.#html) ? COMMENT.lastIndex : Number.POSITIVE_INFINITY
  }

  #readText(): Place {
    const html = this.#html
    const at = this.#at
    if (html[at] !== '<') {
      const next = html.indexOf('<', at)
      return { end: next === -1 ? Number.POSITIVE_INFINITY : next, problem: undefined }
    }
    if (html.startsWith('<!--', at)) {
      return { end: this.#endOfComment(at), problem: 'A comment cannot have placeholders.' }
    }
    // Whether it ends at ">" or at "]]>" depends on the elements around it.
    if (html.startsWith('<![CDATA[', at)) {
      const problem = 'After a CDATA section, a page cannot have placeholders.'
      return { end: Number.POSITIVE_INFINITY, problem }
    }
    if (/^<(?:[!?]|\/[^a-z])/i.test(html.slice(at, at + 3))) {
      return { end: this.#endOf('>', at), problem: 'A declaration cannot have placeholders.' }
    }
    const tag = /^<\/?[a-z][^\t\n\f\r />]*/i.exec(html.slice(at, at + 64))?.[0]
    if (tag === undefined) return { end: at + 1, problem: undefined }
    const name = tag.replace(/^<\/?/, '').toLowerCase()
    if (OTHER_RULES.has(name)) this.#depth += tag.startsWith('</') ? -Math.sign(this.#depth) : 1
    this.#tagOf = RAW.exec(`${tag} `)?.[1]?.toLowerCase() ?? ''
    return { end: at + tag.length, problem: IN_TAG }
  }

  /** Reads one attribute, or the end of the tag with the content of a raw element. */
  #readTag(element: string): Place {
    const html = this.#html
    if (html[this.#at] === '>') {
      this.#tagOf = undefined
      return element === '' ? { end: this.#at + 1, problem: IN_TAG } : this.#readRaw(element)
    }
    ATTRIBUTE.lastIndex = this.#at
    const [read = '', name = '', hasValue] = ATTRIBUTE.exec(html) ?? []
    const end = this.#at + read.length
    if (!hasValue) return { end: Math.max(end, this.#at + 1), problem: IN_TAG }
    const quote = html[end]
    if (quote === '"' || quote === "'") {
      const problem = HARMLESS.test(name)
        ? undefined
        : `The attribute ${name.slice(0, 40)} cannot have placeholders.`
      return { end: this.#endOf(quote, end + 1), problem }
    }
    const bare = /^[^\t\n\f\r >]*/.exec(html.slice(end))?.[0] ?? ''
    return { end: Math.max(end + bare.length, this.#at + 1), problem: IN_TAG }
  }

  #readRaw(element: string): Place {
    const html = this.#html
    const closing = new RegExp(`</${element}(?=[\\t\\n\\f\\r />])`, 'gi')
    closing.lastIndex = this.#at
    const close = element === 'plaintext' ? null : closing.exec(html)
    const end = close ? close.index : Number.POSITIVE_INFINITY
    if (this.#depth > 0 && html.slice(this.#at + 1, end).includes('<')) {
      const problem = `After tags in the element ${element} in svg, math, select or frameset, a page cannot have placeholders.`
      return { end: Number.POSITIVE_INFINITY, problem }
    }
    if (ESCAPED.has(element)) return { end, problem: undefined }
    // In a comment of a script, its end tag may be text.
    const isOpen = html.slice(this.#at, end).includes('<!--')
    const problem = `The element ${element} cannot have placeholders.`
    return { end: isOpen ? Number.POSITIVE_INFINITY : end, problem }
  }
}

const IN_TAG = 'Inside a tag, a placeholder must stand in quotes, as in title="{{title}}".'
