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
  readonly publish: (value: string) => void
  readonly withdraw: (value: string) => void
}

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
  async order({ names, keyPem, publish, withdraw }: AcmeOrder): Promise<string> {
    const [, csr] = await crypto.createCsr({ altNames: [...names] }, keyPem)
    return this.#client.auto({
      csr,
      ...(this.#email === undefined ? {} : { email: this.#email }),
      // Who names an authority in the settings has agreed to its terms.
      termsOfServiceAgreed: true,
      challengePriority: ['dns-01'],
      // The client would ask the machine's resolver, which may know another world.
      skipChallengeVerification: true,
      challengeCreateFn: async (_authorization, { type }, value) => {
        if (type !== 'dns-01') throw new Error(`the authority offers ${type}, not dns-01`)
        publish(value)
      },
      challengeRemoveFn: async (_authorization, _challenge, value) => withdraw(value),
    })
  }
}
