import process from 'node:process'
import * as z from 'zod'
import type { Endpoint } from '../endpoints/endpoint.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'

const count = z.number().int().min(0)

/** How much there is to do at a node. Sums count from its start. */
export const NodeFiguresSchema = z.object({
  /** Sessions of agents. */
  agents: count,
  /** Endpoints of agents, and cloud endpoints that are at home here. */
  endpoints: count,
  requests: count,
  /** Under way. */
  requests_active: count,
  bytes_in: z.number(),
  bytes_out: z.number(),
  memory_bytes: z.number(),
  /** Time of the processor that its process has used. */
  processor_seconds: z.number(),
})
export type NodeFigures = z.infer<typeof NodeFiguresSchema>

export interface FiguresSource {
  readonly registry: EndpointRegistry
  readonly sessions: { readonly size: number }
  /** Of several nodes: what is at home here. */
  readonly node?: { readonly names: { isHome(endpoint: Endpoint): boolean } } | undefined
}

/** Of several nodes, each knows all cloud endpoints. */
export function countHome({ registry, node }: Pick<FiguresSource, 'registry' | 'node'>): number {
  if (!node) return registry.size
  let number = 0
  for (const endpoint of registry.all()) {
    if (endpoint.type === 'agent' || node.names.isHome(endpoint)) number += 1
  }
  return number
}

/** Those of this node. */
export function nodeFigures(source: FiguresSource): NodeFigures {
  const { registry, sessions } = source
  const figures = { requests: 0, requests_active: 0, bytes_in: 0, bytes_out: 0 }
  for (const { requests, active, bytesIn, bytesOut } of registry.totals.byProtocol().values()) {
    figures.requests += requests
    figures.requests_active += active
    figures.bytes_in += bytesIn
    figures.bytes_out += bytesOut
  }
  const { user, system } = process.cpuUsage()
  return {
    agents: sessions.size,
    endpoints: countHome(source),
    ...figures,
    memory_bytes: process.memoryUsage.rss(),
    processor_seconds: (user + system) / 1_000_000,
  }
}
