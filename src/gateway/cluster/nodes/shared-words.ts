import { BoundedCache } from '../../../base/bounded-cache.ts'
import type { ClaimFacts, ClaimRow } from './claim.ts'

/** What is forgotten stays where it is used. */
const MOST_WORDS = 20_000

/**
 * Words that many claims have in common, those of a device, an account or a node, each kept once: what
 * comes from the database has a copy of its own in each row.
 */
export class SharedWords {
  readonly #words = new BoundedCache((word) => word, MOST_WORDS)

  /** The same row; written out, because an object that is put together of others takes more memory. */
  rowOf(row: ClaimRow): ClaimRow {
    const { facts } = row
    const { movesTo } = facts
    // Whole, or it does not compile: a fact that is left out here is gone for visitors.
    const shared: Required<Omit<ClaimFacts, 'movesTo'>> = {
      endpointId: facts.endpointId,
      kind: facts.kind,
      protocol: facts.protocol,
      url: facts.url,
      ownerId: this.#once(facts.ownerId),
      endsTls: facts.endsTls,
      isShared: facts.isShared,
      sessionId: this.#once(facts.sessionId),
      credentialId: this.#once(facts.credentialId),
      clientId: this.#once(facts.clientId),
      deviceId: this.#once(facts.deviceId),
      instance: this.#once(facts.instance),
      generation: facts.generation,
    }
    return {
      scope: this.#words.get(row.scope),
      entrance: row.entrance,
      host: row.host,
      member: row.member,
      node: this.#once(row.node),
      epoch: row.epoch,
      facts: movesTo === undefined ? shared : { ...shared, movesTo },
    }
  }

  #once(word: string | null): string | null {
    return word === null ? null : this.#words.get(word)
  }
}
