import { axios, Client, crypto } from 'acme-client'

/** Timeout of one HTTP request to the authority, in milliseconds. */
const REQUEST_MS = 30_000
/** The longest answer is a certificate chain of a few kilobytes. */
const MAX_ANSWER_BYTES = 1_048_576

export interface AcmeAccountOptions {
  /** URL of the authority's directory (RFC 8555 section 7.1.1). */
  readonly directoryUrl: string
  /** Contact email for the authority, for problems. */
  readonly email: string | undefined
  /** PEM. */
  readonly accountKey: string
}

/** A certificate order and its DNS challenge. */
export interface AcmeOrder {
  readonly names: readonly string[]
  /** Private key of the certificate, PEM. */
  readonly keyPem: string
  /** Once this resolves, DNS queries for the challenge return the value. */
  readonly publish: (value: string) => void | Promise<void>
  readonly withdraw: (value: string) => void
  /** Called before each step that the authority counts. The order stops if it rejects. */
  readonly requireWanted?: () => Promise<void>
}

type Authorization = Awaited<ReturnType<Client['getAuthorizations']>>[number]

/**
 * An account with an ACME authority. This file is imported with the first order, because the client library
 * is large.
 */
export class AcmeAccount {
  readonly #client: Client
  readonly #email: string | undefined

  constructor({ directoryUrl, email, accountKey }: AcmeAccountOptions) {
    axios.defaults.timeout = REQUEST_MS
    axios.defaults.maxContentLength = MAX_ANSWER_BYTES
    // Disables the client's own retries. The domain has the only retry schedule, and the client's retries
    // lose the reason if an answer is missing.
    axios.interceptors.request.clear()
    axios.interceptors.response.clear()
    this.#client = new Client({ directoryUrl, accountKey })
    this.#email = email
  }

  /** Resolves with the chain, PEM, after seconds or minutes. Rejects with the authority's own error text. */
  async order(wanted: AcmeOrder): Promise<string> {
    const { names, keyPem, requireWanted } = wanted
    const [, csr] = await crypto.createCsr({ altNames: [...names] }, keyPem)
    await this.#register()
    await requireWanted?.()
    const identifiers = names.map((value) => ({ type: 'dns', value }))
    const order = await this.#client.createOrder({ identifiers })
    for (const authorization of await this.#client.getAuthorizations(order)) {
      if (authorization.status !== 'valid') await this.#authorize(authorization, wanted)
    }
    await requireWanted?.()
    return this.#client.getCertificate(await this.#client.finalizeOrder(order, csr))
  }

  async #register(): Promise<void> {
    try {
      this.#client.getAccountUrl()
    } catch {
      // If the authority knows the key, it returns the existing account.
      await this.#client.createAccount({
        // An authority in the settings implies that its terms are accepted.
        termsOfServiceAgreed: true,
        ...(this.#email === undefined ? {} : { contact: [`mailto:${this.#email}`] }),
      })
    }
  }

  /**
   * RFC 8555 section 7.5.1. The DNS record is not checked first, because the machine's resolver may see other
   * data.
   */
  async #authorize(
    authorization: Authorization,
    { publish, withdraw, requireWanted }: AcmeOrder,
  ): Promise<void> {
    const { challenges } = authorization
    const challenge = challenges.find(({ type }) => type === 'dns-01')
    if (!challenge) {
      const offered = challenges.map(({ type }) => type).join(', ')
      throw new Error(`the authority offers ${offered}, but not dns-01`)
    }
    const value = await this.#client.getChallengeKeyAuthorization(challenge)
    try {
      await publish(value)
      await requireWanted?.()
      await this.#client.completeChallenge(challenge)
      await this.#client.waitForValidStatus(challenge)
    } finally {
      withdraw(value)
    }
  }
}
