import { describe, expect, it } from 'vitest'
import type { ErrorValues } from '../../../src/gateway/error-pages/error-kind.ts'
import {
  MAX_PAGE_BYTES,
  PageProblem,
  PageTemplate,
} from '../../../src/gateway/error-pages/page-template.ts'

const VALUES: ErrorValues = {
  status: 503,
  title: 'Device offline',
  message: `<script>alert(1)</script> " ' & {{host}}`,
  host: 'a.test',
  requestId: '0123456789ab',
  code: 'ERR_GATEWAY_AWAY',
  retryAfterS: 5,
}

const render = (html: string) => PageTemplate.parse(html).render(VALUES)

function problemOf(html: string): PageProblem {
  try {
    PageTemplate.parse(html)
  } catch (error) {
    if (error instanceof PageProblem) return error
    throw error
  }
  throw new Error(`accepted: ${html}`)
}

describe('an own page', () => {
  it('gets the values of the error', () => {
    const html = '{{status}} {{ title }} {{host}} {{request_id}} {{code}} {{retry_after}}'
    expect(render(html)).toBe('503 Device offline a.test 0123456789ab ERR_GATEWAY_AWAY 5')
    const bare = { ...VALUES, code: undefined, retryAfterS: undefined }
    expect(PageTemplate.parse('[{{code}}{{retry_after}}]').render(bare)).toBe('[]')
  })

  it('escapes each value, and reads no placeholder in a value', () => {
    const escaped = '&#60;script&#62;alert(1)&#60;/script&#62; &#34; &#39; &#38; {{host}}'
    expect(render('<p>{{message}}</p>')).toBe(`<p>${escaped}</p>`)
    expect(render(`<a title='{{message}}'>`)).toBe(`<a title='${escaped}'>`)
  })

  it('keeps its own text as it is, with scripts and styles', () => {
    const html = `<!doctype html><style>a{b:c}</style><script>if (1 < 2) {}</script>é€😀 }} <b x=y>`
    expect(render(html)).toBe(html)
  })

  it.each([
    ['{{upstream}}', 1, 1, '{{upstream}} is unknown'],
    ['a\né {{ nope }}', 2, 3, '{{nope}} is unknown'],
    ['{{status', 1, 1, 'not valid'],
    ['{{}}', 1, 1, 'not valid'],
    ['x{{{status}}}', 1, 2, 'not valid'],
    ['{{{{status}}}}', 1, 1, 'not valid'],
    ['{{constructor}}', 1, 1, '{{constructor}} is unknown'],
    ['{{<script>}}', 1, 1, 'not valid'],
  ])('is refused for the placeholder in %j at line %i, column %i', (html, line, column, text) => {
    const problem = problemOf(html)
    expect([problem.line, problem.column]).toEqual([line, column])
    expect(problem.message).toContain(text)
  })

  it.each([
    ['a script', '<script>x = "{{host}}"</script>'],
    ['a script in capitals', '<SCRIPT src=x>\n{{host}}</SCRIPT>'],
    ['a script with a comment that hides its end', '<script><!--<script></script>{{host}}'],
    ['a style', '<style>a { b: {{host}} }</style>'],
    ['a comment', '<!-- {{host}} -->'],
    ['a comment that browsers end early', '<!--><script>{{host}}</script>-->'],
    ['a script after a comment', '<!-- --!><script>/* -->{{host}} */</script>'],
    ['a CDATA section', '<svg><![CDATA[ > <a title="]]><script>{{host}}</script>">'],
    ['the title of an image', '<svg><title><script>{{host}}</script></title></svg>'],
    ['a text field in an image', '<SVG><textarea><script>{{host}}</script></textarea></SVG>'],
    [
      'a style of an image',
      `<svg><style><a title="</style><a title='"><script>{{host}}</script>'>`,
    ],
    ['a title that browsers drop', '<select><title><script>{{host}}</script></title></select>'],
    ['a declaration', '<!x title="><script>{{host}}</script>">'],
    ['an end tag of no element', '</ title="><script>{{host}}</script>">'],
    ['raw text', '<xmp><a title="</xmp><script>{{host}}</script>">'],
    ['raw text without an end', '<plaintext></plaintext>{{host}}'],
    ['a tag', '<a {{host}}>'],
    ['the name of a tag', '<{{host}}>'],
    ['the name of an end tag', '<title></{{host}}></title>'],
    ['an attribute without quotes', '<a title={{host}}>'],
    ['an attribute whose quote comes later', '<a title=x"{{host}}">'],
    ['an attribute with a quote in its name', '<a /="{{host}}">'],
    ['an event handler', `<a onclick="x('{{host}}')">`],
    ['a document in an attribute', '<iframe srcdoc="{{host}}"></iframe>'],
    ['a style attribute', `<a style='{{host}}'>`],
    ['a source', '<img src="{{host}}">'],
  ])('is refused for a placeholder in %s', (_what, html) => {
    expect(() => PageTemplate.parse(html)).toThrow(PageProblem)
    expect(PageTemplate.parse(html.replace('{{host}}', 'host')).render(VALUES)).toContain('host')
  })

  it.each([
    '<title>{{title}}</title>',
    '<textarea>{{title}}</textarea>',
    '<script>1</script>{{title}}',
    '<!-- x -->{{title}}',
    '<!-- x --!>{{title}}',
    '<!-->{{title}}<!--->{{title}}<!-- -->',
    '<svg><title>{{title}}</title><style>a{}</style></svg><title>a<b {{title}}</title>',
    '<a href="mailto:me@a.test?subject={{title}}">x</a>',
    `<a\n data-x = '{{title}}' hidden>`,
    '<a title="a > b">{{title}}',
    '1 < 2 {{title}}',
    '<br/>{{title}}',
  ])('may have a placeholder in %j', (html) => {
    expect(render(html)).toBe(html.replaceAll('{{title}}', 'Device offline'))
  })

  it.each([
    ['empty', ' \n'],
    ['too large', 'é'.repeat(MAX_PAGE_BYTES / 2 + 1)],
    ['half a character', 'a\ud800b'],
    ['with a NUL', 'a\0b'],
    ['with too many placeholders', '{{status}}'.repeat(201)],
  ])('is refused when it is %s', (_what, html) => {
    expect(() => PageTemplate.parse(html)).toThrow(PageProblem)
  })
})
