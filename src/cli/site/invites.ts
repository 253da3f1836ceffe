import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { formatDuration, systemClock } from '../../base/clock.ts'
import { isThisMachine } from '../../base/net/public-names.ts'
import type { Config } from '../../config.ts'
import { parseJoinString } from '../../join/join-string.ts'
import type { CommandContext } from '../command-context.ts'
import { isTerminal, paintFor, plainLine, tableText } from '../local/terminal-text.ts'
import { agentReach } from '../local-address.ts'
import {
  type ManagementOptions,
  managementConfig,
  openManagement,
} from '../provision/management-access.ts'
import { NotServedError } from '../provision/management-client.ts'

/** The options of `gateway invite`. */
export interface InviteOptions extends ManagementOptions {
  readonly name?: string
  readonly tag?: readonly string[]
  readonly domain?: string
  readonly allow?: readonly string[]
  readonly description?: string
  /** Milliseconds. */
  readonly end?: number
  readonly count: number
  readonly replace?: boolean
  readonly qr?: boolean
  readonly json?: boolean
}

/** The options of `gateway invites` and `gateway withdraw`. */
export interface InvitesOptions extends ManagementOptions {
  readonly json?: boolean
}

const Invite = z.object({
  id: z.string(),
  description: z.string(),
  name: z.string().nullable(),
  tags: z.array(z.string()),
  domain: z.string().nullable(),
  acl: z.array(z.string()),
  expires_at: z.string(),
  max_uses: z.number(),
  uses: z.number(),
  state: z.string(),
  claims: z.array(z.object({ at: z.string(), name: z.string(), address: z.string() })),
})
const NewInvite = Invite.extend({
  join_string: z.string(),
  join_command: z.string(),
  // A gateway of an earlier version does not answer it.
  name_taken_by: z
    .object({ device_id: z.string().nullable(), credential_ids: z.array(z.string()) })
    .nullish(),
  domain_is_new: z.boolean().nullish(),
})
const Rules = z.object({ acl: z.array(z.string()) })
type Invite = z.infer<typeof Invite>
type NewInvite = z.infer<typeof NewInvite>

/** Creates an invitation and prints its join string, which is shown only here. */
export async function invite(context: CommandContext, options: InviteOptions): Promise<void> {
  const { stdout, stderr, environment } = context
  const config = managementConfig(context, options)
  const client = await openManagement(context, options, config)
  const made = await client.create('invites', bodyOf(options), NewInvite)
  const isShown = !options.json && (options.qr ?? isTerminal(stdout))
  if (options.json) stdout.write(`${JSON.stringify(made)}\n`)
  else stdout.write(describeInvite(made, systemClock.now()))
  if (isShown) {
    const { qrText } = await import('../local/qr-text.ts')
    const isColoured = paintFor(stdout, environment)('bold', '') !== ''
    stdout.write(`\n${await qrText(made.join_string, isColoured)}\n`)
  }
  const lost: string[] = []
  for (const id of authtokensOf(made)) {
    const { acl } = await client.get(`credentials/${id}`, Rules)
    lost.push(...acl.map(nameOf).filter((it) => !namesOf(made).includes(it)))
    // The line was printed before anything ends: it is shown only here.
    if (options.replace) await client.delete(`credentials/${id}`)
  }
  const advices = [
    nameAdvice(made, options, lost),
    adviceFor(made, options, config),
    domainAdvice(made),
  ]
  for (const advice of advices) {
    if (advice !== undefined) stderr.write(`warning: ${advice}\n`)
  }
}

/** Authtokens of the device that has the name of the invitation. */
function authtokensOf({ name_taken_by: holder }: NewInvite): readonly string[] {
  return holder?.device_id ? holder.credential_ids : []
}

/**
 * Says that a device has the name of the invitation; undefined: none has it. `lost`: names of its old authtoken that
 * the invitation does not give.
 */
function nameAdvice(
  made: NewInvite,
  { replace }: InviteOptions,
  lost: readonly string[],
): string | undefined {
  const { name, name_taken_by: holder } = made
  if (!holder || name === null) return undefined
  if (!holder.device_id) {
    return `a bot user named ${name} exists. No device can join with this line. Choose another name`
  }
  const also =
    lost.length === 0
      ? ''
      : `. Not in this invitation: ${lost.join(', ')}. To keep such a name, run the command again with --allow`
  return replace
    ? `the old authtoken of ${name} was revoked. The device is offline until it joins with this line${also}`
    : `a device named ${name} exists. Only that device can join with this line, with its present authtoken. For another machine, or after the restore of an older backup, run this command with --replace${also}`
}

function domainAdvice({ domain, domain_is_new: isNew }: NewInvite): string | undefined {
  if (!isNew) return undefined
  return `${domain} is not reserved yet. It is reserved when the device joins, and needs DNS records`
}

function bodyOf({ name, tag, domain, allow, description, end, count }: InviteOptions): object {
  const rules = allow?.map((it) => (/^(bind|share):/.test(it) || it === '*' ? it : `bind:${it}`))
  return {
    ...(name !== undefined && { name }),
    ...(tag && { tags: tag }),
    ...(domain !== undefined && { domain }),
    ...(rules && { acl: rules }),
    ...(description !== undefined && { description }),
    ...(end !== undefined && { expires_at: new Date(systemClock.now() + end).toISOString() }),
    ...(count > 1 && { max_uses: count }),
  }
}

/** Text for people. */
export function describeInvite(made: NewInvite, now: number): string {
  const { id, name, tags, join_command, max_uses, expires_at } = made
  const end = new Date(expires_at)
  const left = formatDuration(end.getTime() - now)
  const times = max_uses === 1 ? 'It works for one device.' : `It works for ${max_uses} devices.`
  const rows = [
    ['name', name ?? 'the host name of the device'],
    ['may open', mayOpen(made)],
    ...(tags.length > 0 ? [['tags', tags.join(', ')]] : []),
    ['until', `${localTime(end)} (${left})`],
    ['id', id],
  ]
  return `Paste this line on the device. ${times}

  ${plainLine(join_command)}

${table(rows).replace(/^/gm, '  ').trimEnd()}

To end it earlier: device-agent gateway withdraw ${id}
`
}

function mayOpen(invite: Invite): string {
  return namesOf(invite).join(', ') || 'all names of its account'
}

function namesOf({ domain, acl, name }: Invite): string[] {
  const device = name ?? '<name>'
  const own = domain?.includes('{name}')
    ? [domain.replaceAll('{name}', device)]
    : domain === null
      ? []
      : [`${device}${domain.slice(1)}`, `*.${device}${domain.slice(1)}`]
  return [...own, ...acl.map((rule) => nameOf(rule).replaceAll('{name}', device))]
}

function nameOf(rule: string): string {
  return rule.replace(/^bind:/, '')
}

/** Why devices may not reach the gateway; undefined if they can. */
function adviceFor(
  { join_string }: NewInvite,
  { apiUrl }: ManagementOptions,
  { gateway }: Config,
): string | undefined {
  if (!apiUrl) return agentReach(gateway.agentListen, gateway.publicNames).advice
  const parsed = parseJoinString(join_string)
  if ('problem' in parsed || !parsed.addresses.every(({ host }) => isThisMachine(host))) {
    return undefined
  }
  return 'devices on other machines cannot use the addresses in this join string; set GATEWAY_AGENT_LISTEN and GATEWAY_PUBLIC_NAMES of the gateway'
}

export async function listInvites(context: CommandContext, options: InvitesOptions): Promise<void> {
  const client = await openManagement(context, options, managementConfig(context, options))
  const invites = await client.list('invites', Invite)
  context.stdout.write(options.json ? `${JSON.stringify({ invites })}\n` : describeInvites(invites))
}

/** Text for people: a line for each invitation, and one for each device. */
export function describeInvites(invites: readonly Invite[]): string {
  if (invites.length === 0) return 'No invitations. Create one: device-agent gateway invite\n'
  const rows = invites.flatMap((it) => [
    [
      it.id,
      it.state,
      `${it.uses} of ${it.max_uses}`,
      localTime(new Date(it.expires_at)),
      it.name ?? it.domain ?? '',
      it.description,
    ],
    ...it.claims.map(({ at, name, address }) => [
      `  joined: ${name}`,
      '',
      '',
      localTime(new Date(at)),
      `from ${address}`,
    ]),
  ])
  return table([['ID', 'STATE', 'USED', 'UNTIL', 'NAME', 'DESCRIPTION'], ...rows])
}

export async function withdraw(
  context: CommandContext,
  id: string,
  options: InvitesOptions,
): Promise<void> {
  if (!/^inv_\w+$/.test(id)) {
    throw new StartError(
      `${id} is not the id of an invitation. List them: device-agent gateway invites`,
    )
  }
  const client = await openManagement(context, options, managementConfig(context, options))
  await client.delete(`invites/${id}`).catch((error) => {
    if (!(error instanceof NotServedError)) throw error
    throw new StartError(`No invitation ${id}. List them: device-agent gateway invites`, {
      cause: error,
    })
  })
  const said = options.json
    ? JSON.stringify({ id, state: 'withdrawn' })
    : `Withdrawn. No further device can join with ${id}.`
  context.stdout.write(`${said}\n`)
}

function table(rows: readonly (readonly string[])[]): string {
  return tableText(
    rows.map((row) => row.map((text) => ({ text }))),
    (_colour, text) => text,
  )
}

/** `2026-11-27 14:00` in the time of this machine. */
function localTime(date: Date): string {
  const two = (value: number) => String(value).padStart(2, '0')
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join('-')
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`
}
