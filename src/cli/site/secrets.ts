import { readFileSync } from 'node:fs'
import process from 'node:process'
import { buffer } from 'node:stream/consumers'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import type { CommandContext } from '../command-context.ts'
import { tableText } from '../local/terminal-text.ts'
import {
  type ManagementOptions,
  managementConfig,
  openManagement,
} from '../provision/management-access.ts'
import type { ManagementClient } from '../provision/management-client.ts'

/** The options of `gateway secrets list`. */
export interface SecretsOptions extends ManagementOptions {
  readonly json?: boolean
}

/** The options of `gateway secrets set`. */
export interface SetOptions extends SecretsOptions {
  readonly file?: string
  readonly allow?: readonly string[]
  readonly account?: string
}

/** The options of `gateway secrets allow`. */
export interface AllowOptions extends SecretsOptions {
  readonly none?: boolean
  /** Keep earlier ids. */
  readonly add?: boolean
  readonly account?: string
}

/** The options of `gateway secrets remove`. */
export interface RemoveOptions extends SecretsOptions {
  readonly account?: string
  readonly force?: boolean
}

/** A secret as policies name it. */
interface Named {
  readonly vault: string
  readonly name: string
}

const Vault = z.object({
  id: z.string(),
  name: z.string(),
  owner_id: z.string().nullable(),
  description: z.string(),
})
const SecretItem = z.object({
  id: z.string(),
  name: z.string(),
  owner_id: z.string().nullable(),
  vault: z.object({ id: z.string() }),
  vault_name: z.string(),
  description: z.string(),
  allow: z.array(z.string()),
  value_set_at: z.string(),
  used_by: z.array(z.object({ url: z.string() })),
})
type SecretItem = z.infer<typeof SecretItem>

/** Sets the value of a secret. Creates the secret and its vault if needed. */
export async function setSecret(
  context: CommandContext,
  { vault, name }: Named,
  options: SetOptions,
): Promise<void> {
  const { file, allow, account, json } = options
  const value = await readValue(file)
  const client = await open(context, options)
  const body = { value, ...(allow && { allow }) }
  const isMeant = await accountFilter(client, account)
  const found = await findSecret(client, { vault, name }, isMeant)
  const kept = found
    ? await client.update(`vault_secrets/${found.id}`, body, SecretItem)
    : await createSecret(client, { vault, name }, body, { account, isMeant })
  const done = found ? 'Replaced the value of' : 'Created'
  const use = `Policies use it with secrets.get('${vault}', '${name}').`
  context.stdout.write(json ? lineOf(kept) : `${done} ${vault}/${name}. ${use}\n`)
}

async function createSecret(
  client: ManagementClient,
  { vault, name }: Named,
  body: object,
  { account, isMeant }: { account: string | undefined; isMeant: AccountFilter },
): Promise<SecretItem> {
  const vaults = await client.list('vaults', Vault)
  const owner = account === undefined ? {} : { owner_id: account }
  const { id } =
    vaults.find((it) => it.name === vault && isMeant(it)) ??
    (await client.create('vaults', { name: vault, ...owner }, Vault))
  return client.create('vault_secrets', { vault_id: id, name, ...body }, SecretItem)
}

export async function listSecrets(context: CommandContext, options: SecretsOptions): Promise<void> {
  const secrets = await allSecrets(await open(context, options))
  context.stdout.write(options.json ? lineOf({ secrets }) : describeSecrets(secrets))
}

/** Text for people: a line for each secret. */
export function describeSecrets(secrets: readonly SecretItem[]): string {
  if (secrets.length === 0) {
    return 'No secrets. Create one: device-agent gateway secrets set <vault> <name>\n'
  }
  const rows = secrets.map((it) => [
    it.vault_name,
    it.name,
    it.owner_id ?? 'gateway owner',
    it.value_set_at,
    it.allow.join(', ') || 'cloud endpoints',
    it.used_by.map(({ url }) => url).join(', ') || 'nothing',
  ])
  const head = ['VAULT', 'NAME', 'ACCOUNT', 'SET AT', 'ALLOWED FOR', 'USED BY']
  return tableText(
    [head, ...rows].map((row) => row.map((text) => ({ text }))),
    (_colour, text) => text,
  )
}

/** Sets or extends the list of IDs whose policies may use a secret. Throws a StartError if it does not exist. */
export async function allowSecret(
  context: CommandContext,
  { vault, name }: Named,
  { ids, ...options }: AllowOptions & { readonly ids: readonly string[] },
): Promise<void> {
  const client = await open(context, options)
  const { id } = await requireSecret(client, { vault, name }, options.account)
  // The gateway adds them, so that two commands at once lose nothing.
  const change = options.add ? { add_allow: ids } : { allow: ids }
  const kept = await client.update(`vault_secrets/${id}`, change, SecretItem)
  const allowed = ['cloud endpoints of the account', ...kept.allow].join(', ')
  context.stdout.write(options.json ? lineOf(kept) : `Allowed for ${vault}/${name}: ${allowed}.\n`)
}

/** Deletes a secret. Throws a StartError if it does not exist, or policies use it. */
export async function removeSecret(
  context: CommandContext,
  { vault, name }: Named,
  options: RemoveOptions,
): Promise<void> {
  const { account, force, json } = options
  const client = await open(context, options)
  const found = await requireSecret(client, { vault, name }, account)
  const { id } = found
  await client.delete(force ? `vault_secrets/${id}/force` : `vault_secrets/${id}`)
  await removeEmptyVault(client, found.vault.id)
  context.stdout.write(json ? lineOf({ deleted: id }) : deletedText(`${vault}/${name}`, found))
}

function deletedText(title: string, { used_by: users }: SecretItem): string {
  if (users.length === 0) return `Deleted ${title}.\n`
  const urls = users.map(({ url }) => url).join(', ')
  return `Deleted ${title}. Policies still use it: ${urls}. Requests that read it get 500. A tunnel of a device is refused when the device connects again, until you set the secret again or change the policy.\n`
}

/** The secret is deleted: a vault that is gone or has new secrets is no failure. */
async function removeEmptyVault(client: ManagementClient, id: string): Promise<void> {
  try {
    const vault = (await client.list('vaults', Vault)).find((it) => it.id === id)
    const rest = await allSecrets(client)
    const isEmpty = !rest.some((it) => it.vault.id === id)
    if (isEmpty && vault?.description === '') await client.delete(`vaults/${id}`)
  } catch (error) {
    if (!(error instanceof StartError)) throw error
  }
}

const open = (context: CommandContext, options: ManagementOptions) =>
  openManagement(context, options, managementConfig(context, options))

const allSecrets = (client: ManagementClient) =>
  client.list('vault_secrets', SecretItem, { collection: 'secrets' })

/** Throws a StartError if the secret does not exist. */
async function requireSecret(
  client: ManagementClient,
  { vault, name }: Named,
  account: string | undefined,
): Promise<SecretItem> {
  const isMeant = await accountFilter(client, account)
  const found = await findSecret(client, { vault, name }, isMeant)
  if (found) return found
  throw new StartError(
    `There is no secret ${vault}/${name}. List them: device-agent gateway secrets list. Set it: device-agent gateway secrets set ${vault} ${name}`,
  )
}

async function findSecret(
  client: ManagementClient,
  { vault, name }: Named,
  isMeant: AccountFilter,
): Promise<SecretItem | undefined> {
  const secrets = await allSecrets(client)
  return secrets.find((it) => it.vault_name === vault && it.name === name && isMeant(it))
}

/** Whether a vault or secret belongs to the account that a command is about. */
type AccountFilter = (item: { readonly owner_id: string | null }) => boolean

/** By default the gateway's owner. A key that is limited to an account means that account. */
async function accountFilter(
  client: ManagementClient,
  account: string | undefined,
): Promise<AccountFilter> {
  if (account !== undefined) return ({ owner_id }) => owner_id === account
  // Nodes belong to the gateway's owner: a key of another account sees none, and only items of its account.
  const nodes = await client.list('nodes', z.object({ id: z.string() }))
  return ({ owner_id }) => owner_id === null || nodes.length === 0
}

/** Reads a value without the line break at its end. Throws a StartError. */
async function readValue(file: string | undefined): Promise<string> {
  const name = file ?? 'Standard input'
  let bytes: Buffer
  try {
    bytes = file === undefined ? await buffer(process.stdin) : readFileSync(file)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot read ${name} (${code}).`, { cause: error })
  }
  try {
    const value = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    const trimmed = value.replace(/\r?\n$/, '')
    if (trimmed !== '') return trimmed
  } catch {
    throw new StartError(`${name} is not UTF-8. Encode it, for example with base64.`)
  }
  throw new StartError(`${name} contains no value.`)
}

const lineOf = (value: unknown) => `${JSON.stringify(value)}\n`
