import { randomBytes } from 'node:crypto'
import * as z from 'zod'
import { Secret } from '../../base/secret.ts'
import type { Joined as JoinedAt } from '../../join/join-client.ts'
import type { JoinString } from '../../join/join-string.ts'
import { readIfThere } from '../provision/env-file.ts'
import { type JoinPlace, writeInto } from './join-place.ts'

/** Claims for more invitations at a time are of no use. */
const MAX_CLAIMS = 8

const Invitation = { invitation: z.string(), pin: z.string() }
const Joined = z.object({
  ...Invitation,
  joined: z.object({ name: z.string(), url: z.string().nullable() }),
})
/** Sent, or about to be sent. The same claim gets an authtoken again. */
const Claim = z.object({ ...Invitation, claim: z.string().regex(/^[\w-]{22,64}$/) })
/** The last join, beside claims of joins that did not finish, the newest last. */
const Stored = z.object({
  version: z.literal(1),
  last: Joined.optional(),
  claims: z.array(Claim).max(MAX_CLAIMS),
})
type Stored = z.infer<typeof Stored>

const EMPTY: Stored = { version: 1, claims: [] }

/** A device that is in a gateway. */
export interface JoinedDevice {
  readonly name: string
  readonly url: string | null
}

/**
 * Keeps which invitation a device has used, and a claim for each invitation whose join did not finish. A join that
 * fails changes neither the last join nor the claims for other invitations.
 */
export class JoinRecord {
  readonly #place: JoinPlace
  #value: Stored

  /** A damaged record is as good as none: the next join makes another claim. */
  constructor(place: JoinPlace) {
    this.#place = place
    this.#value = Stored.safeParse(parsed(readIfThere(place.recordPath))).data ?? EMPTY
  }

  /** Name and URL of the device if it has joined. */
  get joined(): JoinedDevice | undefined {
    return this.#value.last?.joined
  }

  /** Whether exactly this invitation was used by the last join. */
  hasUsed(joinString: JoinString): boolean {
    const { last } = this.#value
    return last !== undefined && isFor(joinString, last)
  }

  /** The claim of the device for this invitation. It is on disk before this returns. */
  claimFor(joinString: JoinString): Secret {
    const { claims } = this.#value
    const found = claims.find((it) => isFor(joinString, it))
    if (found) return new Secret(found.claim)
    const { id, pin } = joinString
    const made = { invitation: id, pin, claim: randomBytes(16).toString('base64url') }
    this.#write({ ...this.#value, claims: [...claims, made].slice(-MAX_CLAIMS) })
    return new Secret(made.claim)
  }

  /** All settings of the gateway are written: claims have served their purpose. */
  finish({ id, pin }: JoinString, { name, agentUrl }: JoinedAt): void {
    const last = { invitation: id, pin, joined: { name, url: agentUrl ?? null } }
    this.#write({ ...EMPTY, last })
  }

  #write(value: Stored): void {
    const text = `${JSON.stringify(value)}\n`
    writeInto(this.#place, { path: this.#place.recordPath, text, mode: 0o600 })
    this.#value = value
  }
}

function isFor(
  { id, pin }: JoinString,
  stored: { readonly invitation: string; readonly pin: string },
) {
  return stored.invitation === id && stored.pin === pin
}

function parsed(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? '')
  } catch {
    return undefined
  }
}
