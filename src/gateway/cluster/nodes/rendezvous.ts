import { createHash } from 'node:crypto'
import type { NodeRow } from './node-facts.ts'

/**
 * The node that should claim a name that no device brings along: the same at all nodes that see the
 * same, and another only for the names of a node that comes or goes (highest random weight). It
 * promises nothing: whose the name is, its claim says.
 */
export function homeFor(name: string, nodes: readonly NodeRow[]): string | undefined {
  let best: { readonly id: string; readonly weight: string } | undefined
  for (const { id, standing } of nodes) {
    if (standing !== 'serving') continue
    const weight = createHash('sha256').update(`${id}\n${name}`).digest('hex')
    if (!best || weight > best.weight) best = { id, weight }
  }
  return best?.id
}
