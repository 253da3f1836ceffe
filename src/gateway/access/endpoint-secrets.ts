import type {
  PolicySecrets,
  SecretName,
  SecretProblem,
} from '../../policy/exchange/policy-secrets.ts'
import type { ReservedDomainStore } from '../records/reserved-domain-store.ts'
import type { VaultSecret, VaultSecretStore, VaultStore } from '../records/vault-store.ts'
import type { NameOwners } from './name-rules.ts'
import type { SecretSeal } from './secret-seal.ts'

export interface SecretAccessDeps {
  readonly vaults: VaultStore
  readonly vaultSecrets: VaultSecretStore
  readonly domains: Pick<ReservedDomainStore, 'version'>
  readonly owners: Pick<NameOwners, 'reservationOf'>
  readonly seal: Pick<SecretSeal, 'open'>
}

/** The endpoint whose policy uses secrets. */
export interface SecretUser {
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  /** Authtoken of the device; null for a cloud endpoint. */
  readonly credentialId: string | null
  readonly host: string
}

/**
 * Decides which secrets the policy of an endpoint may use:
 *
 * - A name is looked up in the vaults of the endpoint's account, then in those of the gateway's owner.
 * - Cloud endpoints may use all secrets of their account.
 * - Other endpoints need an entry in the secret's list: their authtoken, their account or their domain.
 */
export class SecretAccess {
  readonly #deps: SecretAccessDeps

  constructor(deps: SecretAccessDeps) {
    this.#deps = deps
  }

  /** Increases when a secret or the access to it may have changed. */
  get version(): number {
    const { vaults, vaultSecrets, domains } = this.#deps
    return vaults.version + vaultSecrets.version + domains.version
  }

  /** The secrets of one endpoint. */
  for(user: SecretUser): PolicySecrets {
    return new EndpointSecrets(this, user)
  }

  /** Undefined if there is no such secret, or the endpoint may not use it. */
  find(user: SecretUser, name: SecretName): VaultSecret | undefined {
    const secret = this.named(user.ownerId, name)
    return secret && this.#mayUse(user, secret) ? secret : undefined
  }

  /** Undefined if the endpoint may not use the secret, or the value cannot be opened. */
  read(user: SecretUser, name: SecretName): string | undefined {
    const secret = this.find(user, name)
    return secret && this.#deps.seal.open(secret.sealed, secret)
  }

  /** The secret that a name means in the policies of an account, whether they may use it or not. */
  named(ownerId: string | null, name: SecretName): VaultSecret | undefined {
    return this.#inVaultsOf(ownerId, name) ?? this.#inVaultsOf(null, name)
  }

  #inVaultsOf(ownerId: string | null, { vault, name }: SecretName): VaultSecret | undefined {
    const found = this.#deps.vaults.find(ownerId, vault)
    return found && this.#deps.vaultSecrets.find(found.id, name)
  }

  #mayUse({ ownerId, credentialId, host }: SecretUser, secret: VaultSecret): boolean {
    if (credentialId === null && secret.ownerId === ownerId) return true
    const { allow } = secret
    if (credentialId !== null && allow.includes(credentialId)) return true
    if (ownerId !== null && allow.includes(ownerId)) return true
    const domain = this.#deps.owners.reservationOf(host)
    return domain !== undefined && allow.includes(domain.id)
  }
}

const NOT_IN_ACCOUNT: SecretProblem = {
  message: 'the account has no such secret',
  isOnlyForNew: true,
}
/** The same for missing secrets, so that the text does not tell which secrets exist. */
function notForDevice({ vault, name }: SecretName, credentialId: string): SecretProblem {
  const secrets = 'device-agent gateway secrets'
  const allow = `${secrets} allow --add ${vault} ${name} ${credentialId}`
  const set = `${secrets} set ${vault} ${name} --allow ${credentialId}`
  return {
    message: `there is no such secret for this authtoken, its account or this domain. To allow a secret that exists, run \`${allow}\` on the gateway. To set a missing secret, run \`${set}\` there`,
    isOnlyForNew: false,
  }
}

/** Values are kept until a secret or a domain changes. */
class EndpointSecrets implements PolicySecrets {
  readonly #access: SecretAccess
  readonly #user: SecretUser
  /** By vault and name. */
  readonly #values = new Map<string, string | undefined>()
  #version = -1

  constructor(access: SecretAccess, { ownerId, credentialId, host }: SecretUser) {
    this.#access = access
    this.#user = { ownerId, credentialId, host }
  }

  /**
   * A device learns nothing about secrets that it may not use: the text is the same for missing secrets. A
   * stored policy of a cloud endpoint keeps its place, and the secret can come back.
   */
  problemOf(name: SecretName): SecretProblem | undefined {
    if (this.#access.find(this.#user, name)) return undefined
    const { credentialId } = this.#user
    if (credentialId === null) return NOT_IN_ACCOUNT
    return notForDevice(name, credentialId)
  }

  read(name: SecretName): string | undefined {
    const { version } = this.#access
    if (version !== this.#version) this.#values.clear()
    this.#version = version
    const key = `${name.vault} ${name.name}`
    const kept = this.#values.get(key)
    if (kept !== undefined) return kept
    const value = this.#access.read(this.#user, name)
    this.#values.set(key, value)
    return value
  }
}
