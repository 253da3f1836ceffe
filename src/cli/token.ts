import { Command, InvalidArgumentError, Option } from 'commander'
import { MAX_OVERLAP_S } from '../api/token-form.ts'
import { parseDuration } from '../base/duration.ts'
import type { CommandContext } from './command-context.ts'
import type { CreateOptions, RotateOptions, TokenOptions } from './token/token-commands.ts'

const DAY_MS = 86_400_000

/** `device-agent token …`: who may use the agent's API. */
export function tokenCommand(context: CommandContext): Command {
  const token = new Command('token').description(
    "make, list, rotate and revoke the tokens of the agent's API",
  )
  const subcommand = (name: string, description: string) =>
    token
      .command(name)
      .description(description)
      .option('--json', 'one JSON line on stdout, and nothing else')
  // Loaded late: the other commands have no use for it.
  const commands = () => import('./token/token-commands.ts')
  const expires = () =>
    new Option('--expires <when>', 'when it ends: 90d, 12h, a date or a time; never').argParser(
      parseExpiry,
    )

  subcommand('create', 'make a token, which is shown this once')
    .argument('<name>', 'whom or what it is for')
    .addOption(
      new Option('--scope <scope>', 'what it may do').choices(['read', 'write']).default('read'),
    )
    .addOption(expires())
    .action(async (name: string, options: CreateOptions) => {
      await (await commands()).createToken(context, name, options)
    })
  subcommand('list', 'show all tokens, oldest first').action(async (options: TokenOptions) => {
    await (await commands()).listTokens(context, options)
  })
  subcommand('rotate', 'give a token a new secret, which is shown this once')
    .argument('<token>', 'its name or id')
    .addOption(
      new Option('--overlap <duration>', 'how long the secret from before works on; 0: not at all')
        .argParser(parseOverlap)
        .default(3_600, '1h'),
    )
    .addOption(expires())
    .action(async (name: string, options: RotateOptions) => {
      await (await commands()).rotateToken(context, name, options)
    })
  subcommand('revoke', 'end a token at once, for good')
    .argument('<token>', 'its name or id')
    .action(async (name: string, options: TokenOptions) => {
      await (await commands()).revokeToken(context, name, options)
    })
  return token
}

/** To an ISO time, or `never`. */
function parseExpiry(text: string): string {
  if (text === 'never') return text
  const spanMs = parseSpan(text)
  const time = spanMs === undefined ? parseTime(text) : Date.now() + spanMs
  if (time !== undefined && time > Date.now()) return new Date(time).toISOString()
  throw new InvalidArgumentError(
    'It must lie ahead, such as 90d, 12h, 2030-01-31 or 2030-01-31T09:00:00Z; or be never.',
  )
}

function parseTime(text: string): number | undefined {
  const isIso = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/.test(text)
  const time = isIso ? Date.parse(text) : Number.NaN
  return Number.isNaN(time) ? undefined : time
}

/** To whole seconds. */
function parseOverlap(text: string): number {
  const ms = text === '0' ? 0 : parseSpan(text)
  const seconds = ms === undefined ? Number.NaN : Math.ceil(ms / 1_000)
  if (seconds <= MAX_OVERLAP_S) return seconds
  throw new InvalidArgumentError('It must be a duration such as 10m, 24h or 7d, at most 30d; or 0.')
}

/** Milliseconds of a duration, which may be in days. */
function parseSpan(text: string): number | undefined {
  const days = /^(\d{1,5})d$/.exec(text)?.[1]
  return days === undefined ? parseDuration(text) : Number(days) * DAY_MS
}
