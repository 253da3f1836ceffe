import { StartError } from '../../base/app-error.ts'
import type { ManagementClient } from '../provision/management-client.ts'

export type NodeState = 'live' | 'draining' | 'gone'

export interface NamedNode {
  readonly id: string
  readonly name: string
  readonly state: NodeState
  readonly is_self: boolean
}

/**
 * Finds a gateway of the site by id or name; default: the gateway that answers. If several have the name, it
 * returns the only one with `isMeant`. Throws a StartError.
 */
export function findNode<Node extends NamedNode>(
  nodes: readonly Node[],
  name: string | undefined,
  isMeant: (state: NodeState) => boolean,
  { origin }: Pick<ManagementClient, 'origin'>,
): Node {
  const found = nodes.filter((node) =>
    name === undefined ? node.is_self : node.id === name || node.name === name,
  )
  // Machines may share a name, and a rejoined machine leaves its old entry.
  const meant = found.filter(({ state }) => isMeant(state))
  const [node, another] = meant.length > 0 ? meant : found
  if (node && !another) return node
  const known = nodes.map((it) => `${it.name} (${it.id}, ${it.state})`).join(', ')
  throw new StartError(
    node
      ? `Several gateways are named ${name}. Use an id. Gateways: ${known}.`
      : `${origin} has no gateway ${name ?? 'of its own'}. Gateways: ${known}.`,
  )
}
