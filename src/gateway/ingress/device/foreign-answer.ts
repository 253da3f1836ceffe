import type { HeadScanner } from '../syntax/head-scanner.ts'
import { HttpSyntaxError } from '../syntax/http-syntax-error.ts'
import { beginsLikeHttp1, parseResponseHead } from '../syntax/response-head.ts'
import {
  type DialFailure,
  dialFailureIn,
  mayBeDialFailure,
  resemblesDialFailure,
} from './dial-failure.ts'

/** Who answers in HTTP/1.1 has not understood the method, and sends a body to HEAD, too. */
const METHOD = 'GET'

/**
 * What comes where HTTP/2 was due: the SDK says in HTTP/1.1 that it finds no service, a service that
 * speaks no HTTP/2 says whatever it likes.
 */
export class ForeignAnswer {
  readonly #scanner: HeadScanner
  #body: Buffer | undefined

  /** Not in the middle of a head. */
  constructor(scanner: HeadScanner) {
    this.#scanner = scanner
  }

  /** What it is; undefined while that cannot be told. */
  read(chunk: Buffer): DialFailure | 'invalid' | undefined {
    try {
      return this.#read(chunk)
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      return 'invalid'
    }
  }

  #read(chunk: Buffer): DialFailure | 'invalid' | undefined {
    let body = chunk
    if (!this.#body) {
      if (this.#scanner.heldBytes === 0 && !beginsLikeHttp1(chunk)) return 'invalid'
      const end = this.#scanner.scan(chunk, 0)
      if (end === -1) return undefined
      const head = parseResponseHead(this.#scanner.take(), METHOD)
      if (!resemblesDialFailure(head)) return 'invalid'
      this.#body = Buffer.alloc(0)
      body = chunk.subarray(end)
    }
    this.#body = Buffer.concat([this.#body, body])
    const failure = dialFailureIn(this.#body, METHOD)
    if (failure) return failure
    return mayBeDialFailure(this.#body) ? undefined : 'invalid'
  }
}
