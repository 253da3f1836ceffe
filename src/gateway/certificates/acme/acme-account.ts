import { axios, Client, crypto } from 'acme-client'

const REQUEST_MS = 30_000
/** The longest answer is a chain, a few kilobytes. */
const MAX_ANSWER_BYTES = 1_048_576

export interface AcmeAccountOptions {
  /** Where the authority's directory is (RFC 8555 section 7.1.1). */
  readonly directoryUrl: string
  /** Whom the authority may write to when something is wrong. */
  readonly email: string | undefined
  /** PEM. */
  readonly accountKey: string
}

/** What is ordered, and how its DNS challenge is answered. */
export interface AcmeOrder {
  readonly names: readonly string[]
  /** The certificate's own key, PEM. */
  readonly keyPem: string
  /** When it resolves, whoever asks for the challenge finds the value. */
  readonly publish: (value: string) => void | Promise<void>
  readonly withdraw: (value: string) => void
  /** Asked before what an authority counts; the order goes no further when it rejects. */
  readonly requireWanted?: () => Promise<void>
}

type Authorization = Awaited<ReturnType<Client['getAuthorizations']>>[number]

/** An account with an ACME authority. Imported when the first order is due: its client is large. */
export class AcmeAccount {
  readonly #client: Client
  readonly #email: string | undefined

  constructor({ directoryUrl, email, accountKey }: AcmeAccountOptions) {
    axios.defaults.timeout = REQUEST_MS
    axios.defaults.maxContentLength = MAX_ANSWER_BYTES
    // The client's own retries: there is one schedule, that of the domain, and where an answer is
    // missing they lose the reason.
    axios.interceptors.request.clear()
    axios.interceptors.response.clear()
    this.#client = new Client({ directoryUrl, accountKey })
    this.#email = email
  }

  /** The chain, PEM; it takes seconds, or minutes. Rejects with the authority's own words. */
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
      // An authority that knows the key answers with the account that there is.
      await this.#client.createAccount({
        // Who names an authority in the settings has agreed to its terms.
        termsOfServiceAgreed: true,
        ...(this.#email === undefined ? {} : { contact: [`mailto:${this.#email}`] }),
      })
    }
  }

  /** RFC 8555 section 7.5.1; nobody here asks for the record first: the machine's resolver may know another world. */
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
