import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { Secret } from '../../base/secret.ts'
import { aclRules, type DeviceNames, markBegin, markOf } from '../../gateway/access/device-names.ts'
import type { ManagementClient } from './management-client.ts'

// Only the fields that are of use here: the hosted service answers with more.
const ReservedDomain = z.object({
  id: z.string(),
  domain: z.string(),
  cname_target: z.string().nullish(),
  acme_challenge_cname_target: z.string().nullish(),
  certificate_management_policy: z
    .object({ authority: z.string().nullish(), challenge: z.string().nullish() })
    .nullish(),
})
const BotUser = z.object({ id: z.string(), name: z.string(), active: z.boolean() })
const Credential = z.object({
  id: z.string(),
  metadata: z.string().default(''),
  owner_id: z.string().nullish(),
  acl: z.array(z.string()).default([]),
})
const Device = z.object({
  id: z.string(),
  name: z.string(),
  tags: z.array(z.string()),
  credential: z.object({ id: z.string() }).nullable(),
})
const IssuedCredential = Credential.extend({ token: z.string() })

export type ReservedDomain = z.infer<typeof ReservedDomain>
export type BotUser = z.infer<typeof BotUser>
export type Credential = z.infer<typeof Credential>
export type Device = z.infer<typeof Device>

/** `tags` undefined: no change. */
export interface NamedDevice {
  readonly name: string
  readonly tags: readonly string[] | undefined
}

/** The resources of an API key. Read once, then changed only through this class. */
export class Account {
  readonly #client: ManagementClient
  readonly #domains: Map<string, Promise<ReservedDomain>>
  readonly #botUsers: Map<string, BotUser>
  readonly #credentials: readonly Credential[]
  /** By the ids of their authtokens; undefined where the service has no devices. */
  readonly #devices: Map<string, Device> | undefined

  private constructor(
    client: ManagementClient,
    domains: readonly ReservedDomain[],
    botUsers: readonly BotUser[],
    credentials: readonly Credential[],
    devices: readonly Device[] | undefined,
  ) {
    this.#client = client
    this.#domains = new Map(domains.map((it) => [it.domain, Promise.resolve(it)]))
    this.#botUsers = new Map(botUsers.map((it) => [it.name, it]))
    this.#credentials = credentials
    this.#devices =
      devices && new Map(devices.flatMap((it) => (it.credential ? [[it.credential.id, it]] : [])))
  }

  static async open(client: ManagementClient): Promise<Account> {
    // In sequence, so that a wrong key is reported once.
    const domains = await client.list('reserved_domains', ReservedDomain)
    const botUsers = await client.list('bot_users', BotUser)
    const credentials = await client.list('credentials', Credential)
    const devices = await client.listIfServed('devices', Device)
    return new Account(client, domains, botUsers, credentials, devices)
  }

  hasDomain(domain: string): boolean {
    return this.#domains.has(domain)
  }

  /** Reserved wildcards with this name as their first label. */
  domainsOf(name: string): string[] {
    return [...this.#domains.keys()].filter((domain) => domain.startsWith(`*.${name}.`))
  }

  /** Reserves the domain unless it is. Devices that share one share the request. */
  reserve(domain: string): Promise<ReservedDomain> {
    const reserved =
      this.#domains.get(domain) ??
      this.#client.create('reserved_domains', { domain }, ReservedDomain)
    this.#domains.set(domain, reserved)
    return reserved
  }

  /** Throws a StartError for a disabled bot user. */
  findBotUser(name: string): BotUser | undefined {
    const botUser = this.#botUsers.get(name)
    if (botUser?.active === false) {
      throw new StartError(`The bot user ${name} is deactivated. Activate it first.`)
    }
    return botUser
  }

  /** Includes disabled bot users. */
  botUserNamed(name: string): BotUser | undefined {
    return this.#botUsers.get(name)
  }

  async createBotUser(name: string): Promise<BotUser> {
    const botUser = await this.#client.create('bot_users', { name }, BotUser)
    this.#botUsers.set(name, botUser)
    return botUser
  }

  /** Authtokens that were issued for exactly this device and domain. */
  credentialsOf(device: Pick<DeviceNames, 'name' | 'domain'>): Credential[] {
    const mark = markOf(device)
    return this.#credentials.filter(({ metadata }) => metadata === mark)
  }

  /** Authtokens that were issued for a device name, for any domain. */
  credentialsNamed(name: string): Credential[] {
    return this.#credentials.filter(({ metadata }) => metadata.startsWith(markBegin(name)))
  }

  /** True when it has authtokens, and all of them were issued for a device of its name. */
  isOurs({ id, name }: BotUser): boolean {
    const owned = this.#credentials.filter(({ owner_id }) => owner_id === id)
    return owned.length > 0 && owned.every((it) => it.metadata.startsWith(markBegin(name)))
  }

  /** The device's authtoken if it was issued for this name, for any domain. */
  findIssued(authtoken: string, name: string): Credential | undefined {
    return this.credentialsNamed(name).find((credential) => isTokenOf(authtoken, credential))
  }

  async issue(
    device: DeviceNames,
    owner: BotUser,
  ): Promise<{ credential: Credential; authtoken: Secret }> {
    const credential = await this.#client.create(
      'credentials',
      {
        owner_id: owner.id,
        description: `device ${device.name}`,
        metadata: markOf(device),
        acl: aclRules(device),
      },
      IssuedCredential,
    )
    return { credential, authtoken: new Secret(credential.token) }
  }

  /** Lets a device that keeps its authtoken bind its names, where it got others since. */
  async allow(credential: Credential, device: DeviceNames): Promise<void> {
    const { id, acl } = credential
    const rules = aclRules(device)
    const isWide = ['*', 'bind:*', `bind:${device.domain}`].some((rule) => acl.includes(rule))
    if (acl.length === 0 || isWide || rules.every((rule) => acl.includes(rule))) return
    const all = [...new Set([...acl, ...rules])]
    await this.#client.update(`credentials/${id}`, { acl: all }, Credential)
  }

  revoke({ id }: Credential): Promise<void> {
    return this.#client.delete(`credentials/${id}`)
  }

  /** Its endpoints, and its row among the devices, go with it. */
  deleteBotUser({ id }: BotUser): Promise<void> {
    return this.#client.delete(`bot_users/${id}`)
  }

  /** False where a device has no row of its name and tags, in a service that keeps devices. */
  knowsDevice(credentialId: string, { name, tags }: NamedDevice): boolean {
    if (!this.#devices) return true
    const device = this.#devices.get(credentialId)
    const hasTags = !tags || (device && isSameSet(device.tags, tags))
    return device?.name === name && hasTags === true
  }

  /** Sets the name and tags of a device. Undefined tags stay unchanged. */
  async nameDevice(credentialId: string, { name, tags }: NamedDevice): Promise<void> {
    if (this.knowsDevice(credentialId, { name, tags })) return
    const known = this.#devices?.get(credentialId)
    const row = { name, ...(tags && { tags }) }
    const device = known
      ? await this.#client.update(`devices/${known.id}`, row, Device)
      : await this.#client.create('devices', { ...row, credential_id: credentialId }, Device)
    this.#devices?.set(credentialId, device)
  }
}

function isSameSet(some: readonly string[], others: readonly string[]): boolean {
  const set = new Set(others)
  return set.size === new Set(some).size && some.every((it) => set.has(it))
}

/** Both carry the same KSUID. */
function isTokenOf(authtoken: string, { id }: Credential): boolean {
  return authtoken.split('_')[0] === id.replace(/^cr_/, '')
}
