import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { agentMetrics } from '../src/api/agent-metrics.ts'
import { gatewayMetrics } from '../src/gateway/management/gateway-metrics.ts'
import { expectTable, ROOT } from './helpers/document-part.ts'

const PAGE = 'docs/reference/metrics.md'

/** What is listed of metrics is there before anybody reads them. */
const ALL = { agent: agentMetrics({} as never), gateway: gatewayMetrics({} as never) }

it.each(Object.entries(ALL))(`${PAGE} has every metric of the %s`, (part, metrics) => {
  const rows = metrics.map(({ name, type, help, labels = [] }) => {
    return [`\`${name}\``, type, labels.map((label) => `\`${label}\``).join(', '), help]
  })
  expectTable(PAGE, part, ['name', 'type', 'labels', 'says'], rows)
})

it('the dashboard asks for metrics that there are', () => {
  const names = new Set(Object.values(ALL).flatMap((metrics) => metrics.map(({ name }) => name)))
  const text = readFileSync(join(ROOT, 'docs/reference/grafana-dashboard.json'), 'utf8')
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
