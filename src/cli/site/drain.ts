import process from 'node:process'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { CommandContext } from '../command-context.ts'
import { plainLine } from '../local/terminal-text.ts'
import {
  type ManagementOptions,
  managementConfig,
  openManagement,
} from '../provision/management-access.ts'
import type { ManagementClient } from '../provision/management-client.ts'
import { ProgressBar } from '../provision/progress-bar.ts'
import { findNode } from './named-node.ts'

const POLL_MS = 500
const EXIT_LEFT = 3

const Left = z.object({ agents: z.number(), endpoints: z.number(), requests: z.number() })
const Node = z.object({
  id: z.string(),
  name: z.string(),
  state: z.enum(['live', 'draining', 'gone']),
  is_self: z.boolean(),
  is_reached: z.boolean(),
  drain: z.object({ from: Left, left: Left, is_done: z.boolean() }).nullable(),
  drain_given_up: z.object({ reason: z.string() }).nullish(),
})
type Node = z.infer<typeof Node>

export interface DrainOptions extends ManagementOptions {
  readonly undo?: boolean
  /** In ms. */
  readonly timeout: number
  readonly json?: boolean
}

/** Runs the command. Sets the exit code to 3 when something is left. Throws a StartError. */
export async function drain(
  context: CommandContext,
  name: string | undefined,
  options: DrainOptions,
): Promise<void> {
  const { stdout } = context
  const { undo = false, json = false } = options
  const client = await openManagement(context, options, managementConfig(context, options))
  const { id } = findNode(
    await client.list('nodes', Node),
    name,
    (state) => state !== 'gone',
    client,
  )
  const asked = await client.act(`nodes/${id}/${undo ? 'undrain' : 'drain'}`, Node)
  const node = undo ? asked : await untilEmpty(client, asked, context, options)
  const isLeft = !undo && node.drain?.is_done !== true
  if (isLeft) process.exitCode = EXIT_LEFT
  stdout.write(json ? `${toJson(node)}\n` : `${describe(node, undo)}\n`)
}

async function untilEmpty(
  client: ManagementClient,
  asked: Node,
  { stderr, stop }: CommandContext,
  { timeout }: DrainOptions,
): Promise<Node> {
  const until = systemClock.monotonic() + timeout
  const from = asked.drain?.from
  const total = sum(from)
  const bar = new ProgressBar({ stream: stderr, total })
  let node = asked
  try {
    while (node.drain?.is_done !== true && systemClock.monotonic() < until) {
      const left = node.drain?.left
      if (left) bar.show(total - sum(left), `${wordsOf(left)} left`)
      await systemClock.sleep(POLL_MS, stop).catch(() => {})
      if (stop.aborted) {
        throw new StartError(
          `Stopped waiting. ${asked.name} continues to drain until --undo or its stop.`,
        )
      }
      const now = (await client.list('nodes', Node)).find(({ id }) => id === asked.id)
      if (!now || now.state === 'gone') {
        throw new StartError(`The gateway ${asked.name} stopped during the drain.`)
      }
      if (now.state === 'live' && now.is_reached) {
        const reason = now.drain_given_up?.reason
        throw new StartError(
          reason
            ? `${asked.name} accepts connections again. ${plainLine(reason)}`
            : `The drain of ${asked.name} was cancelled by another command.`,
        )
      }
      node = now
    }
    return node
  } finally {
    bar.clear()
  }
}

const sum = (left: z.infer<typeof Left> | undefined) =>
  left ? left.agents + left.endpoints + left.requests : 0

function describe({ name, drain }: Node, isUndone: boolean): string {
  if (isUndone)
    return `${name} accepts connections again. Agents that moved stay at their new gateways.`
  if (!drain) return `${name} is draining, progress unknown.`
  if (drain.is_done) return `${name} is empty. Stop it at any time, or cancel with --undo.`
  return `${name} is not empty yet: ${wordsOf(drain.left)} left. Agents without another gateway address stay until it stops.`
}

function wordsOf({ agents, endpoints, requests }: z.infer<typeof Left>): string {
  return [count(agents, 'agent'), count(endpoints, 'endpoint'), count(requests, 'request')].join(
    ', ',
  )
}

const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`

function toJson({ id, name, state, drain }: Node): string {
  const { is_done = false, left = null } = drain ?? {}
  return JSON.stringify({ id, name, state, is_done, left })
}
