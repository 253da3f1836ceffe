import type { Secret } from '../base/secret.ts'
import type { Authority } from './authority.ts'
import type { BotUserStore } from './bot-user-store.ts'
import type { CredentialIssuer } from './credential-issuer.ts'
import type { CredentialStore } from './credential-store.ts'
import type { DomainRegistrar } from './domain-registrar.ts'
import type { ReservedDomainStore } from './reserved-domain-store.ts'
import { ServiceError } from './service-error.ts'

export interface ProvisionRequest {
  /** The wildcard that the device may bind below, such as `*.site.example.com`. */
  readonly domain: string
  /** Name of the bot user that owns the credential. */
  readonly name: string
  /** A token from an earlier start: it is handed back when it still allows this. */
  readonly authtoken?: Secret | undefined
}

export interface Provisioned {
  readonly domain: string
  readonly authtoken: Secret
}

export interface ProvisionerDeps {
  readonly domains: ReservedDomainStore
  readonly botUsers: BotUserStore
  readonly credentials: CredentialStore
  readonly registrar: DomainRegistrar
  readonly issuer: CredentialIssuer
  readonly authority: Authority
}

/** Gives one device what it needs; doing it again changes nothing. */
export class Provisioner {
  readonly #deps: ProvisionerDeps

  constructor(deps: ProvisionerDeps) {
    this.#deps = deps
  }

  /** Every refusal is a ServiceError. A token that was lost is revoked and replaced. */
  provision({ domain, name, authtoken }: ProvisionRequest): Provisioned {
    const { domains, botUsers, credentials, registrar, issuer } = this.#deps
    if (!domains.find(domain)) registrar.reserve({ domain })
    if (authtoken && this.#allows(authtoken, domain)) return { domain, authtoken }
    const { id: ownerId } = botUsers.findByName(name) ?? issuer.createBotUser({ name })
    for (const id of credentials.idsOfOwner(ownerId)) {
      const lost = credentials.get(id)
      if (lost?.description === domain) issuer.deleteCredential(lost)
    }
    const issued = issuer.createCredential({
      ownerId,
      description: domain,
      acl: [`bind:${domain}`],
    })
    return { domain, authtoken: issued.authtoken }
  }

  #allows(authtoken: Secret, domain: string): boolean {
    const { authority } = this.#deps
    try {
      authority.checkBind(authority.authenticate(authtoken.reveal()).id, domain)
      return true
    } catch (error) {
      if (error instanceof ServiceError) return false
      throw error
    }
  }
}
