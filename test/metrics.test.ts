import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { agentMetrics } from '../src/api/agent-metrics.ts'
import { gatewayMetrics } from '../src/gateway/management/gateway-metrics.ts'
import type { Metric } from '../src/http/metrics.ts'

const DOCS = join(import.meta.dirname, '../docs')
const PAGE = join(DOCS, 'metrics.md')

/** What is listed of metrics is there before anybody reads them. */
const ALL = { agent: agentMetrics({} as never), gateway: gatewayMetrics({} as never) }

function tableOf(metrics: readonly Metric[]): string {
  const rows = metrics.map(({ name, type, help, labels = [] }) => {
    return `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ')} | ${help} |`
  })
  return ['| name | type | labels | says |', '|---|---|---|---|', ...rows].join('\n')
}

it.each(Object.entries(ALL))('docs/metrics.md has every metric of the %s', (name, metrics) => {
  const text = readFileSync(PAGE, 'utf8')
  const part = new RegExp(`(<!-- ${name} -->\n)[\\s\\S]*?(\n<!-- /${name} -->)`)
  const updated = text.replace(
    part,
    (_, open: string, close: string) => open + tableOf(metrics) + close,
  )
  if (process.env.README_UPDATE) writeFileSync(PAGE, updated)
  else expect(text).toBe(updated)
  expect(text).toMatch(part)
})

it('the dashboard asks for metrics that there are', () => {
  const names = new Set(Object.values(ALL).flatMap((metrics) => metrics.map(({ name }) => name)))
  const text = readFileSync(join(DOCS, 'grafana-dashboard.json'), 'utf8')
  const { panels } = JSON.parse(text) as {
    panels: { title: string; targets?: { expr: string }[] }[]
  }
  const asked = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
  expect(asked.length).toBeGreaterThan(15)
  const used = asked.flatMap(
    (expr) => expr.match(/\b(?:device_(?:agent|gateway)|process)_\w+/g) ?? [],
  )
  expect(used.filter((name) => !names.has(name))).toEqual([])
})
