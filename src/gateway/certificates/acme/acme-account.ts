import { axios, Client, crypto } from 'acme-client'
import { createPrivateKeyPem } from '../../records/private-key.ts'
import type { IssuedCertificate } from '../certificate-file.ts'

/** Timeout of one HTTP request to the authority, in milliseconds. */
const REQUEST_MS = 30_000
/** The longest answer is a certificate chain of a few kilobytes. */
const MAX_ANSWER_BYTES = 1_048_576
/** RFC 8555 section 8: base64url. It becomes part of a path. */
const TOKEN = /^[\w-]{1,256}$/

/** Types of challenges that a gateway can answer. */
export type ChallengeType = 'dns-01' | 'tls-alpn-01' | 'http-01'

/** Answer of the gateway to a challenge. */
export interface ChallengeAnswer {
  readonly type: ChallengeType
  readonly token: string
  /** Value of the TXT record; for the other types the key authorization (RFC 8555 section 8.1). */
  readonly value: string
}

export interface AcmeAccountOptions {
  /** URL of the authority's directory (RFC 8555 section 7.1.1). */
  readonly directoryUrl: string
  /** Contact email for the authority, for problems. */
  readonly email: string | undefined
  /** PEM. */
  readonly accountKey: string
}

/** A certificate order for one name, and the answer to its challenge. */
export interface AcmeOrder {
  readonly names: readonly string[]
  /** Private key of the certificate, PEM. */
  readonly keyPem: string
  /** Types of challenges that are accepted, the preferred type first. */
  readonly types: readonly ChallengeType[]
  /** Once this resolves, all gateways give the answer. */
  readonly publish: (answer: ChallengeAnswer) => void | Promise<void>
  readonly withdraw: (answer: ChallengeAnswer) => void
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
    if (order.authorizations.length !== names.length) {
      throw new Error('the authority asks for more authorizations than names')
    }
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
   * RFC 8555 section 7.5.1. A DNS record of a challenge is not checked first, because the machine's resolver
   * may see other data.
   */
  async #authorize(
    { identifier, challenges }: Authorization,
    { names, types, publish, withdraw, requireWanted }: AcmeOrder,
  ): Promise<void> {
    if (!names.some((name) => name.replace(/^\*\./, '') === identifier.value)) {
      throw new Error('the authority asks for a name that was not ordered')
    }
    const type = types.find((each) => challenges.some((offered) => offered.type === each))
    const challenge = challenges.find((offered) => offered.type === type)
    if (!type || !challenge) {
      const offered = challenges.map((each) => each.type).join(', ')
      throw new Error(`the authority offers ${offered}, but not ${types.join(' or ')}`)
    }
    const { token } = challenge
    if (!TOKEN.test(token)) throw new Error('the token of the authority is not valid')
    const value = await this.#client.getChallengeKeyAuthorization(challenge)
    const answer = { type, token, value }
    try {
      await publish(answer)
      await requireWanted?.()
      await this.#client.completeChallenge(challenge)
      await this.#client.waitForValidStatus(challenge)
    } finally {
      withdraw(answer)
    }
  }
}

/** Certificate that answers a TLS-ALPN-01 challenge (RFC 8737 section 3). */
export async function challengeCertificate(
  host: string,
  keyAuthorization: string,
): Promise<IssuedCertificate> {
  const keyPem = await createPrivateKeyPem()
  const authorization = { identifier: { type: 'dns', value: host } }
  const [, certificate] = await crypto.createAlpnCertificate(
    authorization as Authorization,
    keyAuthorization,
    keyPem,
  )
  return { certPem: certificate.toString(), keyPem }
}
