import * as z from 'zod'
import { Semaphore } from '../../base/semaphore.ts'

/** As many as a gateway takes in one request. */
const MOST = 100
/** A service that takes them one by one is not to be flooded. */
const ALONE_AT_ONCE = 8

export interface ManagementAnswer {
  readonly status: number
  readonly text: string
}

const Answers = z.object({
  responses: z.array(z.object({ status: z.int(), body: z.unknown() })),
})

interface Waiting {
  readonly path: string
  readonly body: object
  readonly resolve: (answer: ManagementAnswer | Promise<ManagementAnswer>) => void
  readonly reject: (error: unknown) => void
}

/**
 * Puts what is to be made at the same time into one request, `POST /batch`. A service that has none, as
 * the hosted one, gets them one by one.
 */
export class CreateBatches {
  readonly #post: (path: string, body: object) => Promise<ManagementAnswer>
  #waiting: Waiting[] = []
  #isServed = true
  readonly #alone = new Semaphore(ALONE_AT_ONCE)

  constructor(post: (path: string, body: object) => Promise<ManagementAnswer>) {
    this.#post = post
  }

  ask(path: string, body: object): Promise<ManagementAnswer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ path, body, resolve, reject })
      if (this.#waiting.length === 1) setImmediate(() => this.#flush())
    })
  }

  #flush(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (let at = 0; at < waiting.length; at += MOST) {
      const some = waiting.slice(at, at + MOST)
      this.#send(some).catch((error: unknown) => {
        for (const { reject } of some) reject(error)
      })
    }
  }

  async #send(some: readonly Waiting[]): Promise<void> {
    if (!this.#isServed || some.length === 1) return this.#sendAlone(some)
    const requests = some.map(({ path, body }) => ({ path, body }))
    const { status, text } = await this.#post('batch', { requests })
    if (status === 404 || status === 405) {
      this.#isServed = false
      return this.#sendAlone(some)
    }
    const parsed = status === 200 ? Answers.safeParse(tryJson(text)).data : undefined
    for (const [at, { resolve }] of some.entries()) {
      const answer = parsed?.responses[at]
      // What was refused as a whole was so for each.
      if (!answer) resolve({ status, text })
      else resolve({ status: answer.status, text: JSON.stringify(answer.body) })
    }
  }

  #sendAlone(some: readonly Waiting[]): void {
    for (const { path, body, resolve } of some) {
      resolve(this.#alone.run(() => this.#post(path, body)))
    }
  }
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
