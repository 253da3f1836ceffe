import { Command } from 'commander'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { CommandContext } from '../command-context.ts'
import { surroundingsOf } from '../surroundings.ts'
import { isTerminal, paintFor } from './terminal-text.ts'

const WATCH_MS = 2_000
/** Moves the cursor home and clears the screen below. */
const REDRAW = '\x1b[H\x1b[2J'

interface StatusOptions {
  readonly dataDir?: string
  readonly watch?: boolean
  readonly json?: boolean
}

/** `device-agent status`: how the agent of this device is. Ends with 1 when it is not healthy. */
export function statusCommand(context: CommandContext): Command {
  return new Command('status')
    .description('show the status of this device and its tunnels')
    .option('--watch', 'refresh until stopped')
    .option(
      '--data-dir <folder>',
      'data directory of the agent; default: from the settings, or of the service',
    )
    .option('--json', 'print one JSON line on stdout')
    .action((options: StatusOptions) => show(context, options))
}

async function show(context: CommandContext, options: StatusOptions): Promise<void> {
  const { stop } = context
  const look = await looker(context, options)
  if (!options.watch) {
    const { text, isHealthy } = await look().catch(async (error: unknown) => {
      const { LoneGatewayError } = await import('./stopped-service.ts')
      const isFine = error instanceof LoneGatewayError && error.isActive && !options.json
      if (!isFine) throw error
      return { text: `${error.message}\n`, isHealthy: true }
    })
    context.stdout.write(text)
    if (!isHealthy) process.exitCode = 1
    return
  }
  let shown = ''
  while (!stop.aborted) {
    // Watching continues over a restart of the agent.
    const text = await look().then((seen) => seen.text, sentenceOf)
    shown = redraw(context, options, text, shown)
    await systemClock.sleep(WATCH_MS, stop).catch(() => {})
  }
}

/** Loaded late, as in other commands, so that --help is fast. */
async function looker(context: CommandContext, { json, dataDir }: StatusOptions) {
  const { LocalAgent } = await import('./local-agent.ts')
  const { StatusView } = await import('../../api/status-view.ts')
  const { TunnelStatusView } = await import('../../api/tunnel-view.ts')
  const { statusText } = await import('./status-text.ts')
  const { withCredential } = await import('./unpassed-credential.ts')
  const { withOwnName } = await import('./own-name.ts')
  const paint = paintFor(context.stdout, context.environment)
  return async () => {
    const agent = LocalAgent.find(context, dataDir)
    const status = await agent.ask({ path: '/status' }, StatusView)
    const tunnels = await agent.ask({ path: '/tunnels?view=status' }, z.array(TunnelStatusView))
    const shown = withCredential({ status, tunnels }, authtokenFile(context, dataDir))
    const text = json
      ? `${JSON.stringify({ status, tunnels })}\n`
      : withOwnName(statusText(shown.status, shown.tunnels, paint), context, dataDir)
    return { text, isHealthy: status.healthy }
  }
}

/** Undefined: not set, or the user may not read the settings of the service. */
function authtokenFile({ environment }: CommandContext, dataDir: string | undefined) {
  try {
    return surroundingsOf(environment, dataDir).environment.SVC_AUTHTOKEN_FILE
  } catch (error) {
    if (error instanceof StartError) return undefined
    throw error
  }
}

/** On a terminal, redraws in place. Elsewhere prints only changes: a log would fill up. */
function redraw(
  { stdout }: CommandContext,
  { json }: StatusOptions,
  text: string,
  shown: string,
): string {
  const lasting = withoutTimes(text)
  if (isTerminal(stdout) && !json) stdout.write(REDRAW + text)
  else if (lasting !== shown) stdout.write(text)
  return lasting
}

function sentenceOf(error: unknown): string {
  if (error instanceof StartError) return `${error.message}\n`
  throw error
}

/** Times that count up are no change. */
const withoutTimes = (text: string) =>
  text.replaceAll(
    /"now":"[^"]*"|"latency_ms":[\d.]+|"last_probe_at":"[^"]*"|\b\d+ (?:s|min|h|d)\b/g,
    '',
  )
