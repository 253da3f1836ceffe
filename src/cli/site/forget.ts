import * as z from 'zod'
import type { CommandContext } from '../command-context.ts'
import {
  type ManagementOptions,
  managementConfig,
  openManagement,
} from '../provision/management-access.ts'
import { findNode } from './named-node.ts'

const Node = z.object({
  id: z.string(),
  name: z.string(),
  state: z.enum(['live', 'draining', 'gone']),
  is_self: z.boolean(),
})

export interface ForgetOptions extends ManagementOptions {
  readonly json?: boolean
}

/** Runs the command. Throws a StartError, also for a gateway that is not gone. */
export async function forget(
  context: CommandContext,
  name: string,
  options: ForgetOptions,
): Promise<void> {
  const { stdout } = context
  const client = await openManagement(context, options, managementConfig(context, options))
  const nodes = await client.list('nodes', Node)
  const { id, name: called } = findNode(nodes, name, (state) => state === 'gone', client)
  await client.delete(`nodes/${id}`)
  stdout.write(
    options.json
      ? `${JSON.stringify({ id, name: called, state: 'forgotten' })}\n`
      : `Removed ${called} (${id}). It can only return as a new gateway with a new join token.\n`,
  )
}
