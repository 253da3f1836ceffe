import { randomBytes } from 'node:crypto'
import * as z from 'zod'
import { Secret } from '../../base/secret.ts'
import type { Joined } from '../../join/join-client.ts'
import type { JoinString } from '../../join/join-string.ts'
import { readIfThere } from '../provision/env-file.ts'
import { type JoinPlace, writeInto } from './join-place.ts'

const Common = { version: z.literal(1), invitation: z.string(), pin: z.string() }
const Stored = z.union([
  /** Sent, or about to be sent. The same claim gets an authtoken again. */
  z.object({ ...Common, claim: z.string().regex(/^[\w-]{22,64}$/) }),
  z.object({ ...Common, joined: z.object({ name: z.string(), url: z.string().nullable() }) }),
])
type Stored = z.infer<typeof Stored>

/** A device that is in a gateway. */
export interface JoinedDevice {
  readonly name: string
  readonly url: string | null
}

/** Keeps which invitation a device uses or has used. It contains a claim until the device has joined. */
export class JoinRecord {
  readonly #place: JoinPlace
  #value: Stored | undefined

  /** A damaged record is as good as none: the next join makes another claim. */
  constructor(place: JoinPlace) {
    this.#place = place
    this.#value = Stored.safeParse(parsed(readIfThere(place.recordPath))).data
  }

  /** Name and URL of the device if it has joined. */
  get joined(): JoinedDevice | undefined {
    return this.#value && 'joined' in this.#value ? this.#value.joined : undefined
  }

  /** Whether the device has joined with exactly this invitation. */
  hasUsed({ id, pin }: JoinString): boolean {
    return this.joined !== undefined && this.#isOf(id, pin)
  }

  /** The claim of the device for this invitation. It is on disk before this returns. */
  claimFor({ id, pin }: JoinString): Secret {
    if (this.#value && 'claim' in this.#value && this.#isOf(id, pin)) {
      return new Secret(this.#value.claim)
    }
    const claim = randomBytes(16).toString('base64url')
    this.#write({ version: 1, invitation: id, pin, claim })
    return new Secret(claim)
  }

  /** All settings of the gateway are written: the claim has served its purpose. */
  finish({ id, pin }: JoinString, { name, agentUrl }: Joined): void {
    this.#write({ version: 1, invitation: id, pin, joined: { name, url: agentUrl ?? null } })
  }

  #isOf(id: string, pin: string): boolean {
    return this.#value?.invitation === id && this.#value.pin === pin
  }

  #write(value: Stored): void {
    const text = `${JSON.stringify(value)}\n`
    writeInto(this.#place, { path: this.#place.recordPath, text, mode: 0o600 })
    this.#value = value
  }
}

function parsed(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? '')
  } catch {
    return undefined
  }
}
