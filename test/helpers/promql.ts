/** A series that an expression reads. */
export interface Selector {
  readonly metric: string
  readonly labels: readonly string[]
  /** Duration in brackets; undefined for an instant vector. */
  readonly range: string | undefined
}

export interface ReadExpression {
  readonly selectors: readonly Selector[]
  /** Labels of `by` and `without`. */
  readonly groupings: readonly string[]
}

const TOKEN =
  /\s+|(?<text>"(?:[^"\\]|\\.)*")|(?<duration>\d+(?:ms|[smhdwy]))|(?<number>\d+(?:\.\d+)?)|(?<name>[a-zA-Z_:][\w:]*)|(?<symbol>=~|!~|!=|==|>=|<=|[-+*/%^(){}[\],<>=])/y
const OPERATORS = /^(?:[-+*/%^<>]|[<>=!]=|and|or|unless)$/
const AGGREGATIONS = new Set('sum min max avg count topk bottomk quantile'.split(' '))
/** Functions by the vectors that they take: of a range, or of an instant. */
const RANGE_FUNCTIONS = new Set(
  'rate irate increase delta deriv changes resets avg_over_time min_over_time max_over_time'.split(
    ' ',
  ),
)
const FUNCTIONS = new Set(
  'abs vector scalar absent clamp_min clamp_max histogram_quantile time round'.split(' '),
)

/** Reads the part of PromQL that our board and rules use. Throws for all other text. */
export function readPromql(source: string): ReadExpression {
  const tokens = [...tokensOf(source)]
  const selectors: Selector[] = []
  const groupings: string[] = []
  let at = 0
  const peek = () => tokens[at] ?? ''
  const take = () => tokens[at++] ?? ''
  const fail = (wanted: string): never => {
    throw new Error(`${wanted} expected at "${tokens.slice(at).join(' ')}" in ${source}`)
  }
  const expect = (token: string) => (peek() === token ? take() : fail(token))
  const matching = (form: RegExp, wanted: string) => (form.test(peek()) ? take() : fail(wanted))

  function list(item: () => void, close: string): void {
    while (peek() !== close) {
      item()
      if (peek() !== close) expect(',')
    }
    expect(close)
  }

  function expression(): void {
    operand()
    while (OPERATORS.test(peek())) {
      take()
      operand()
    }
  }

  function operand(): void {
    if (peek() === '-') take()
    if (peek() === '(') {
      take()
      expression()
      expect(')')
    } else if (/^\d/.test(peek())) {
      matching(/^\d+(?:\.\d+)?$/, 'a number')
    } else {
      named(matching(/^[a-zA-Z_:]/, 'a name'))
    }
  }

  function named(name: string): void {
    if (AGGREGATIONS.has(name)) {
      grouping()
      expect('(')
      list(expression, ')')
      grouping()
    } else if (RANGE_FUNCTIONS.has(name)) {
      expect('(')
      selector(matching(/^[a-zA-Z_:]/, 'a metric'))
      if (selectors.at(-1)?.range === undefined) fail('a range')
      expect(')')
    } else if (FUNCTIONS.has(name)) {
      expect('(')
      list(expression, ')')
    } else {
      if (peek() === '(') fail(`no function ${name}`)
      selector(name)
      if (selectors.at(-1)?.range !== undefined) fail('an instant vector')
    }
  }

  function grouping(): void {
    if (peek() !== 'by' && peek() !== 'without') return
    take()
    expect('(')
    list(() => groupings.push(matching(/^[a-z_]\w*$/, 'a label')), ')')
  }

  function selector(metric: string): void {
    const labels: string[] = []
    if (peek() === '{') {
      take()
      list(() => {
        labels.push(matching(/^[a-z_]\w*$/, 'a label'))
        matching(/^(?:=|!=|=~|!~)$/, 'a comparison')
        matching(/^"/, 'a text')
      }, '}')
    }
    let range: string | undefined
    if (peek() === '[') {
      take()
      range = matching(/^\d+[a-z]+$/, 'a duration')
      expect(']')
    }
    if (peek() === 'offset') {
      take()
      matching(/^\d+[a-z]+$/, 'a duration')
    }
    selectors.push({ metric, labels, range })
  }

  expression()
  if (at < tokens.length) fail('the end')
  return { selectors, groupings }
}

function* tokensOf(source: string): Generator<string> {
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < source.length) {
    const from = TOKEN.lastIndex
    const found = TOKEN.exec(source)
    if (!found) throw new Error(`no PromQL from "${source.slice(from)}" on`)
    if (found[0].trim() !== '') yield found[0]
  }
}
