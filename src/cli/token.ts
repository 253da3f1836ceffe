import { Command, InvalidArgumentError, Option } from 'commander'
import { MAX_OVERLAP_S } from '../api/token-form.ts'
import { parseDuration } from '../base/clock.ts'
import type { CommandContext } from './command-context.ts'
import type { CreateOptions, RotateOptions, TokenOptions } from './token/token-commands.ts'

const DAY_MS = 86_400_000

/** `device-agent token …`: tokens of the agent's API. */
export function tokenCommand(context: CommandContext): Command {
  const token = new Command('token').description(
    'create, list, rotate and revoke tokens of the agent API',
  )
  const subcommand = (name: string, description: string) =>
    token.command(name).description(description).option('--json', 'print one JSON line on stdout')
  // Loaded late: the other commands have no use for it.
  const commands = () => import('./token/token-commands.ts')
  const expires = () =>
    new Option('--expires <when>', 'expiry: 90d, 12h, a date, a time or never').argParser(
      parseExpiry,
    )

  subcommand('create', 'create a token and show it once')
    .argument('<name>', 'name of the token, such as its user or purpose')
    .addOption(
      new Option('--scope <scope>', 'scope of the token')
        .choices(['read', 'write'])
        .default('read'),
    )
    .addOption(expires())
    .action(async (name: string, options: CreateOptions) => {
      await (await commands()).createToken(context, name, options)
    })
  subcommand('list', 'show all tokens, oldest first').action(async (options: TokenOptions) => {
    await (await commands()).listTokens(context, options)
  })
  subcommand('rotate', 'replace the secret of a token and show the new secret once')
    .argument('<token>', 'name or id of the token')
    .addOption(
      new Option('--overlap <duration>', 'time that the previous secret stays valid; 0: no overlap')
        .argParser(parseOverlap)
        .default(3_600, '1h'),
    )
    .addOption(expires())
    .action(async (name: string, options: RotateOptions) => {
      await (await commands()).rotateToken(context, name, options)
    })
  subcommand('revoke', 'revoke a token immediately')
    .argument('<token>', 'name or id of the token')
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
    'Use a time in the future, such as 90d, 12h, 2030-01-31 or 2030-01-31T09:00:00Z, or never.',
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
  throw new InvalidArgumentError('Use a duration such as 10m, 24h or 7d, at most 30d, or 0.')
}

/** Milliseconds of a duration, which may be in days. */
function parseSpan(text: string): number | undefined {
  const days = /^(\d{1,5})d$/.exec(text)?.[1]
  return days === undefined ? parseDuration(text) : Number(days) * DAY_MS
}
