import { AppError } from '../base/app-error.ts'
import type { Actor } from '../base/audit.ts'
import { matchesHash, type Secret } from '../base/secret.ts'
import type { AuditTrail } from '../store/audit-trail.ts'
import type { Authority } from './access/authority.ts'
import type { CredentialIssuer } from './access/credential-issuer.ts'
import type { TcpAddresses } from './endpoints/tcp-addresses.ts'
import type { ApiKeyStore } from './records/api-key-store.ts'
import type { BotUserStore } from './records/bot-user-store.ts'
import type { CredentialStore } from './records/credential-store.ts'
import type { ReservedDomainStore } from './records/reserved-domain-store.ts'
import { idOfToken } from './records/resource-id.ts'
import { ServiceError } from './records/service-error.ts'
import type { DomainRegistrar } from './resources/reserved-names/domain-registrar.ts'

export interface ProvisionRequest {
  /** Wildcard that the device may bind below, such as `*.site.example.com`. */
  readonly domain: string
  /** Name of the bot user that owns the credential. */
  readonly name: string
  /** Token from an earlier start. It is returned if it was issued for this request, or allows it. */
  readonly authtoken?: Secret | undefined
}

export interface Provisioned {
  readonly domain: string
  readonly authtoken: Secret
}

export interface ApiKeyRequest {
  /** Purpose of the key; unique among the keys that are created here. */
  readonly description: string
  /** Key from an earlier start. It is returned if it is still valid. */
  readonly apiKey?: Secret | undefined
}

/** Actor in the audit trail: only the person that starts the gateway gets here. */
const STARTER: Actor = { kind: 'command-line', id: null, name: 'start of the gateway' }

export interface ProvisionerDeps {
  readonly trail: AuditTrail
  readonly domains: ReservedDomainStore
  readonly botUsers: BotUserStore
  readonly credentials: CredentialStore
  readonly apiKeys: ApiKeyStore
  readonly registrar: DomainRegistrar
  readonly issuer: CredentialIssuer
  readonly authority: Authority
  readonly tcpAddresses?: TcpAddresses | undefined
}

/** Provisions one device. Repeating it changes nothing. */
export class Provisioner {
  readonly #deps: ProvisionerDeps

  constructor(deps: ProvisionerDeps) {
    this.#deps = deps
  }

  /**
   * Replaces and revokes a lost token. An existing token stays, even if its rules or owner were changed,
   * because such changes are intended. Every refusal is a ServiceError.
   */
  async provision({ domain, name, authtoken }: ProvisionRequest): Promise<Provisioned> {
    const { domains, botUsers, credentials, registrar, issuer, tcpAddresses } = this.#deps
    if (!domains.find(domain)) {
      const reserve = () => registrar.reserve({ domain })
      await this.#noted('reserved_domain.create', domain, reserve).catch((error) => {
        // Another gateway of the cluster may have reserved it first.
        if (!domains.find(domain)) throw error
      })
    }
    if (authtoken && (this.#isFor(authtoken, domain) || this.#allows(authtoken, domain))) {
      return { domain, authtoken }
    }
    const { id: ownerId } =
      botUsers.findByName(name) ??
      (await this.#noted('bot_user.create', name, () => issuer.createBotUser({ name })))
    for (const id of credentials.idsOfOwner(ownerId)) {
      const lost = credentials.get(id)
      if (lost?.description !== domain) continue
      await this.#noted('credential.delete', domain, () => issuer.deleteCredential(lost))
    }
    const request = {
      ownerId,
      mayBeInactive: true,
      description: domain,
      acl: [`bind:${domain}`, ...(tcpAddresses ? [`bind:${tcpAddresses.anyPort}`] : [])],
    }
    const create = () => issuer.createCredential(request)
    const issued = await this.#noted('credential.create', domain, create)
    return { domain, authtoken: issued.authtoken }
  }

  /** Returns an API key for the management API. A lost key is revoked and replaced. */
  async provisionApiKey({ description, apiKey }: ApiKeyRequest): Promise<Secret> {
    const { apiKeys, authority, issuer } = this.#deps
    if (apiKey && isAllowed(() => authority.authenticateApiKey(apiKey.reveal()))) return apiKey
    for (const id of apiKeys.idsDescribed(description)) {
      const lost = apiKeys.get(id)
      if (!lost) continue
      await this.#noted('api_key.delete', description, () => issuer.deleteApiKey(lost))
    }
    const create = () => issuer.createApiKey({ description })
    const { token } = await this.#noted('api_key.create', description, create)
    return token
  }

  /** The change and its row in the audit trail are one transaction, which concludes an id. */
  #noted<T>(action: string, targetName: string, change: () => Promise<T>): Promise<T> {
    return this.#deps.trail.run({ actor: STARTER, client: null, action, targetName }, change, {
      about: () => ({}),
      codeOf: (error) => (error instanceof ServiceError ? error.errorCode : 'internal'),
      concluded: (targetId) => ({ targetId, targetName }),
    })
  }

  /** Whether the token was issued here for exactly this domain. */
  #isFor(authtoken: Secret, domain: string): boolean {
    const token = authtoken.reveal()
    const credential = this.#deps.credentials.get(idOfToken(token, 'cr') ?? '')
    return credential?.description === domain && matchesHash(token, credential.tokenHash)
  }

  #allows(authtoken: Secret, domain: string): boolean {
    const { authority } = this.#deps
    return isAllowed(() =>
      authority.checkBind(authority.authenticate(authtoken.reveal()).id, domain),
    )
  }
}

function isAllowed(check: () => unknown): boolean {
  try {
    check()
    return true
  } catch (error) {
    if (error instanceof ServiceError) return false
    if (error instanceof AppError && error.code === 'unauthenticated') return false
    throw error
  }
}
