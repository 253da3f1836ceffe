import type { NewTokenView, TokenView } from '../../api/token-view.ts'
import type { CommandContext } from '../command-context.ts'
import { withTokenDesk } from './token-desk.ts'

export interface TokenOptions {
  readonly json?: boolean
}

export interface CreateOptions extends TokenOptions {
  readonly scope: 'read' | 'write'
  /** ISO time, or `never`. */
  readonly expires?: string
}

export interface RotateOptions extends TokenOptions {
  /** In seconds. */
  readonly overlap: number
  readonly expires?: string
}

export async function createToken(
  context: CommandContext,
  name: string,
  { scope, expires, json }: CreateOptions,
): Promise<void> {
  const body = { name, scope, ...expiryOf(expires) }
  const made = await withTokenDesk(context, (desk) => desk.create(body))
  context.stdout.write(json ? lineOf(made) : describeNew(made))
}

export async function listTokens(context: CommandContext, { json }: TokenOptions): Promise<void> {
  const tokens = await withTokenDesk(context, (desk) => desk.list())
  context.stdout.write(json ? lineOf(tokens) : describeTokens(tokens))
}

export async function rotateToken(
  context: CommandContext,
  name: string,
  { overlap, expires, json }: RotateOptions,
): Promise<void> {
  const body = { overlap_s: overlap, ...expiryOf(expires) }
  const rotated = await withTokenDesk(context, (desk) => desk.rotate(name, body))
  context.stdout.write(json ? lineOf(rotated) : describeNew(rotated))
}

export async function revokeToken(
  context: CommandContext,
  name: string,
  { json }: TokenOptions,
): Promise<void> {
  await withTokenDesk(context, (desk) => desk.revoke(name))
  context.stdout.write(json ? lineOf({ revoked: name }) : describeRevoked(name))
}

/** In the format of the API: null means no end, and a missing option is omitted. */
function expiryOf(expires: string | undefined): { expires_at?: string | null } {
  if (expires === undefined) return {}
  return { expires_at: expires === 'never' ? null : expires }
}

const lineOf = (value: unknown) => `${JSON.stringify(value)}\n`

function describeNew({ name, scope, source, expires_at, overlap_ends_at, token }: NewTokenView) {
  const until = expires_at === null ? 'no expiry' : `expires ${expires_at}`
  const place =
    source === 'file' ? 'It is also stored in the file api-token.' : 'It is not stored anywhere.'
  const overlap = overlap_ends_at ? `The previous secret works until ${overlap_ends_at}.\n` : ''
  return `${token}\n\nToken ${name}: scope ${scope}, ${until}. Copy it now, it is not shown again. ${place}\n${overlap}`
}

function describeRevoked(name: string): string {
  const next =
    name === 'owner' ? ' The next start of the agent creates a new token in data/api-token.' : ''
  return `Revoked ${name}.${next}\n`
}

function describeTokens(tokens: readonly TokenView[]): string {
  const head = ['NAME', 'SCOPE', 'ENDS', 'LAST USED', 'ID']
  const rows = tokens.map((token) => [
    token.name,
    token.scope,
    endOf(token),
    token.last_used_at ?? 'never',
    token.id,
  ])
  const widths = head.map((_, at) =>
    Math.max(...[head, ...rows].map((row) => Array.from(row[at] ?? '').length)),
  )
  const table = [head, ...rows]
    .map((row) =>
      row
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .map((line) => `${line}\n`)
    .join('')
  const overlaps = tokens
    .filter(({ overlap_ends_at }) => overlap_ends_at !== null)
    .map((token) => `The previous secret of ${token.name} works until ${token.overlap_ends_at}.\n`)
  return overlaps.length === 0 ? table : `${table}\n${overlaps.join('')}`
}

function endOf({ expires_at }: TokenView): string {
  if (expires_at === null) return 'never'
  return Date.parse(expires_at) > Date.now() ? expires_at : `${expires_at} (expired)`
}
