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
 * The gateway of a site that somebody names, by its id or name; without one, the gateway that is asked.
 * Of several with a name, the only one that `isMeant`. Throws a StartError.
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
  // Machines may have the same name, and one that was joined anew leaves its old place behind.
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
