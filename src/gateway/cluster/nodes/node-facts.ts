import { createHash } from 'node:crypto'
import * as z from 'zod'
import { StartError } from '../../../base/app-error.ts'

/**
 * The node that should claim a name without a device (highest random weight). Nodes with the same view choose
 * the same node. A change of nodes moves only the names of the changed node. This is only a proposal: the
 * claim decides.
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

/** Version of the protocol between nodes. It increases when an older node could not follow. */
export const CLUSTER_PROTOCOL = 1
/** The oldest that this version still understands, so that a site is upgraded node by node. */
export const OLDEST_PROTOCOL = 1

export const NodeFactsSchema = z.object({
  name: z.string(),
  version: z.string(),
  protocol: z.number().int(),
  oldestProtocol: z.number().int(),
  /** Id of the process: a copy of its data directory has another. */
  instance: z.string(),
  /** Address for other nodes. */
  peer: z.object({ host: z.string(), port: z.number().int() }),
  /** Addresses for agents. An earlier version does not send them. */
  agentAddresses: z.array(z.string()).default([]),
  /** Public ports of visitors and agents, 0 if not served. Equal on all nodes. */
  ports: z.record(z.string(), z.number().int()),
  /** Milliseconds since the epoch, by its own clock. */
  startedAt: z.number(),
  /** By how much its clock is ahead of PostgreSQL's, in milliseconds. Older versions do not report it. */
  clockOffMs: z.number().optional(),
})

/** Facts of a node for others. */
export type NodeFacts = z.infer<typeof NodeFactsSchema>

/** `serving` and `draining` as the node says; `lost` as others found; `left`: it has said goodbye. */
export const STANDINGS = ['serving', 'draining', 'lost', 'left'] as const
export type NodeState = (typeof STANDINGS)[number]

export const NodeRowSchema = z.object({
  id: z.string(),
  epoch: z.number().int(),
  beat: z.number().int(),
  standing: z.enum(STANDINGS),
  /** Time of the last change of state or epoch: milliseconds since 1970, by the clock of the database. */
  since: z.number(),
  facts: NodeFactsSchema,
})
export type NodeRow = z.infer<typeof NodeRowSchema>

/** Whether it is there: its names are served, and nothing of it may be taken. */
export function isThere({ standing }: Pick<NodeRow, 'standing'>): boolean {
  return standing === 'serving' || standing === 'draining'
}

/** Throws a StartError if the node cannot work with the existing nodes. */
export function requireFit(facts: NodeFacts, others: readonly NodeRow[]): void {
  for (const { facts: other } of others.filter(isThere)) {
    if (facts.protocol < other.oldestProtocol || other.protocol < facts.oldestProtocol) {
      throw new StartError(
        `This gateway is version ${facts.version} and the node ${other.name} is ${other.version}: they ` +
          'do not understand each other. Upgrade the older one first, and skip no version.',
      )
    }
    for (const name of new Set([...Object.keys(facts.ports), ...Object.keys(other.ports)])) {
      const [own = 0, theirs = 0] = [facts.ports[name], other.ports[name]]
      if (own === theirs) continue
      throw new StartError(
        `The port for ${name} is ${own} here and ${theirs} at the node ${other.name}: all nodes have to ` +
          'listen on the same ports, because addresses of endpoints have them in them.',
      )
    }
  }
}
