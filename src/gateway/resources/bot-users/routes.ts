import * as z from 'zod'
import type { CredentialIssuer } from '../../access/credential-issuer.ts'
import { type AccountQuotas, QUOTA_NAMES, type QuotaName } from '../../records/account-quotas.ts'
import type { BotUser, BotUserStore } from '../../records/bot-user-store.ts'
import { refuseOwnerOnly, renamed } from '../common/caller.ts'
import { Timestamp, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'

const BotUserCreate = z.strictObject({
  name: z.string().default(''),
  active: z.boolean().optional(),
})
/** One field for each quota. */
function forQuotas<Field extends z.ZodType>(field: Field) {
  const fields = Object.fromEntries(QUOTA_NAMES.map((name) => [name, field]))
  return z.strictObject(fields as Record<QuotaName, Field>)
}

const BotUserUpdate = z.strictObject({
  name: z.string().optional(),
  active: z.boolean().optional(),
  /** Changed quotas; null for the default. */
  quotas: forQuotas(z.int().min(0).max(1_000_000_000_000).nullable().optional()).optional(),
})
const BotUserView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  name: z.string(),
  active: z.boolean(),
  /** Its limits and their use; not in the answer to a creation (spec 2.5). */
  quotas: forQuotas(z.int()).optional(),
  usage: forQuotas(z.int()).optional(),
  /** For an account that has more than its quotas allow. */
  warning: z.strictObject({ msg: z.string() }).optional(),
  created_at: Timestamp,
})

export interface BotUsersDeps {
  readonly botUsers: BotUserStore
  readonly quotas: AccountQuotas
  readonly issuer: CredentialIssuer
}

/** Bot users (spec 2.5) under their first name, `bot_users`, or their later one, `service_users`. */
export function botUsers(
  { botUsers: store, quotas, issuer }: BotUsersDeps,
  name: 'bot' | 'service',
): Resource<BotUser> {
  const path = `${name}_users`
  const shown = (user: BotUser): BotUser => ({ ...user, id: renamed(user.id, name) })
  const view = ({ id, name, active, createdAt }: BotUser, baseUrl: string) =>
    ({
      id,
      uri: `${baseUrl}/${path}/${id}`,
      name,
      active,
      quotas: quotas.limitsOf(renamed(id, 'bot')),
      usage: quotas.usageOf(renamed(id, 'bot')),
      ...warningOf(renamed(id, 'bot')),
      created_at: timestamp(createdAt),
    }) satisfies z.infer<typeof BotUserView>
  const warningOf = (id: string) => {
    const msg = quotas.warningOf(id)
    return msg === undefined ? {} : { warning: { msg } }
  }
  const stored = (user: BotUser): BotUser => ({ ...user, id: renamed(user.id, 'bot') })
  return {
    path,
    noun: 'BotUser',
    about:
      name === 'bot' ? 'Owners of authtokens and API keys.' : 'Bot users under their newer name.',
    collection: path,
    prefix: name,
    schema: BotUserView,
    page: ({ limit, beforeId }) =>
      store.page({ limit, beforeId: beforeId && renamed(beforeId, 'bot') }).map(shown),
    get: (id) => {
      const user = store.get(renamed(id, 'bot'))
      return user && shown(user)
    },
    view,
    // An owner sees itself, but cannot change its name or whether it is active.
    ownerOf: ({ id }) => renamed(id, 'bot'),
    checkChange: (caller) => refuseOwnerOnly(caller, 'cannot create or change bot users'),
    create: withBody({ BotUserCreate }, async (body, { baseUrl }) => {
      const user = await issuer.createBotUser(body)
      const { quotas: _quotas, usage: _usage, ...made } = view(shown(user), baseUrl)
      return made
    }),
    update: withBody({ BotUserUpdate }, async (body, { item }) =>
      shown(await issuer.updateBotUser(stored(item), body)),
    ),
    remove: (user) => issuer.deleteBotUser(stored(user)),
  }
}
