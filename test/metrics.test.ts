import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { agentMetrics } from '../src/api/agent-metrics.ts'
import { EDGE_ERRORS } from '../src/gateway/ingress/common/edge-error.ts'
import { gatewayMetrics } from '../src/gateway/management/gateway-metrics.ts'
import { expectTable, ROOT } from './helpers/document-part.ts'
import { readPromql } from './helpers/promql.ts'

const PAGE = 'docs/reference/metrics.md'

/** What is listed of metrics is there before anybody reads them. */
const ALL = { agent: agentMetrics({} as never), gateway: gatewayMetrics({} as never) }

it.each(Object.entries(ALL))(`${PAGE} has every metric of the %s`, (part, metrics) => {
  const rows = metrics.map(({ name, type, help, labels = [] }) => {
    return [`\`${name}\``, type, labels.map((label) => `\`${label}\``).join(', '), help]
  })
  expectTable(PAGE, part, ['name', 'type', 'labels', 'says'], rows)
})

/** Labels that Prometheus adds. */
const TARGET = ['job', 'instance']
/** Labels of each series that there is, by its name. */
const LABELS = new Map<string, readonly string[]>([
  ['up', TARGET],
  ...Object.values(ALL)
    .flat()
    .flatMap(({ name, type, labels = [] }): [string, string[]][] => {
      const all = [...labels, ...TARGET]
      if (type !== 'histogram') return [[name, all]]
      return [
        [`${name}_bucket`, [...all, 'le']],
        [`${name}_sum`, all],
        [`${name}_count`, all],
      ]
    }),
])
const COUNTED = /_(?:total|bucket|sum|count)$/

/** Throws unless each expression reads series that there are, by labels that they have. */
function checkExpression(source: string): void {
  const { selectors, groupings } = readPromql(source)
  expect(selectors.length, source).toBeGreaterThan(0)
  for (const { metric, labels, range } of selectors) {
    const known = LABELS.get(metric)
    expect(known, `${metric} in ${source}`).toBeDefined()
    expect(known, source).toEqual(expect.arrayContaining([...labels, ...groupings]))
    // A counter says nothing but by its growth.
    if (COUNTED.test(metric)) expect(range, source).toBeDefined()
  }
}

describe('the dashboard', () => {
  const text = readFileSync(join(ROOT, 'docs/reference/grafana-dashboard.json'), 'utf8')
  const { panels } = JSON.parse(text) as {
    panels: {
      id: number
      title: string
      gridPos: { x: number; y: number; w: number }
      targets?: { expr: string; legendFormat: string }[]
    }[]
  }

  it('asks for metrics that there are', () => {
    const asked = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
    expect(asked.length).toBeGreaterThan(20)
    for (const expr of asked) checkExpression(expr)
  })

  it('has each panel at a place of its own', () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    const places = panels.map(({ gridPos: { x, y } }) => `${x} ${y}`)
    expect(new Set(places).size).toBe(panels.length)
    for (const { gridPos } of panels) expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24)
  })
})

interface Rule {
  readonly alert: string
  readonly expr: string
  readonly for?: string
  readonly labels: { readonly severity: string }
  readonly annotations: { readonly summary: string; readonly description: string }
}

describe('the alert rules', () => {
  const text = readFileSync(join(ROOT, 'docs/reference/alert-rules.yaml'), 'utf8')
  const { groups } = parse(text) as { groups: { name: string; rules: Rule[] }[] }
  const rules = groups.flatMap((group) => group.rules)

  it('ask for metrics that there are, and for codes that the gateway answers', () => {
    expect(rules.length).toBeGreaterThan(15)
    for (const { expr } of rules) checkExpression(expr)
    const codes = rules.flatMap(({ expr }) => expr.match(/\bERR_\w+/g) ?? [])
    expect(codes.filter((code) => !(code in EDGE_ERRORS))).toEqual([])
  })

  it('have a name, a severity and words for people, which use labels of the alert', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length)
    for (const rule of rules) {
      const { alert, expr, labels, annotations } = rule
      const fields = ['alert', 'annotations', 'expr', 'for', 'labels']
      expect(fields, alert).toEqual(expect.arrayContaining(Object.keys(rule)))
      expect(rule.for ?? '1m', alert).toMatch(/^\d+[mh]$/)
      expect(['critical', 'warning']).toContain(labels.severity)
      expect(annotations.description, alert).toMatch(/\.$/)
      const { selectors, groupings } = readPromql(expr)
      const [first] = selectors
      const given = groupings.length > 0 ? groupings : (LABELS.get(first?.metric ?? '') ?? [])
      const { summary, description } = annotations
      for (const [, label] of `${summary} ${description}`.matchAll(/\$labels\.(\w+)/g))
        expect(given, alert).toContain(label)
    }
  })
})

describe('readPromql', () => {
  it.each([
    'sum(rate(a_total[5m])',
    'sum by (x rate(a_total[5m]))',
    'rate(a_total)',
    'a_total[5m]',
    'sum(a) >',
    'median(a)',
    'a{b="c',
    'a{b}',
    'a b',
    '',
  ])('refuses %j', (source) => {
    expect(() => readPromql(source)).toThrow()
  })

  it('reads series, their labels and their ranges', () => {
    const source = 'sum by (x) (rate(a_total{b=~"c|d"}[5m] offset 1h)) / 2 > 0.5 and a == 0'
    expect(readPromql(source)).toEqual({
      selectors: [
        { metric: 'a_total', labels: ['b'], range: '5m' },
        { metric: 'a', labels: [], range: undefined },
      ],
      groupings: ['x'],
    })
  })
})
